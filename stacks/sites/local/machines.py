"""The machine of kind `local`: the one that runs tailrack. It already exists and needs no connection."""

import getpass
import os
import subprocess
from collections.abc import Sequence

import pulumi

from stacks.sites.kind import NodeSpec
from stacks.sites.local.model import LocalSite
from stacks.sites.machines import Machines, host_of


def machines(_sites: Sequence[LocalSite], nodes: Sequence[NodeSpec], _stack: str) -> Machines:
    """Return this machine as a Host. Raises RunError if steps on it would not run as root."""
    if not pulumi.runtime.is_dry_run():
        _require_root()
    return Machines({node.name: host_of(node, None) for node in nodes})


def _require_root() -> None:
    """Stop before any step: if new steps fail, the Pulumi CLI undoes those of a head node that it reached by SSH."""
    if os.geteuid() == 0:
        return
    try:
        sudo = subprocess.run(["sudo", "-n", "true"], capture_output=True, text=True, check=False)
        reason = "" if sudo.returncode == 0 else sudo.stderr.strip() or "no error message"
    except OSError as error:
        reason = str(error)
    if reason:
        raise pulumi.RunError(
            "this machine is the head node (its site is of kind local), and steps on it need root, but `sudo -n "
            f"true` fails here ({reason}); give {getpass.getuser()} password-less sudo (a line `NAME ALL=(ALL) "
            "NOPASSWD: ALL` in /etc/sudoers.d), or run the command as root"
        )
