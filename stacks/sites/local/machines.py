"""The machine of kind `local`: the one that this program runs on. Nothing is made, and no connection needed."""

import getpass
import os
import subprocess
from collections.abc import Sequence

import pulumi

from stacks.sites.local.model import LocalNode, LocalSite
from stacks.sites.machines import Machines, host_of


def machines(_sites: Sequence[LocalSite], nodes: Sequence[LocalNode], _stack: str) -> Machines:
    """This machine as a Host. RunError where steps on it would not be root."""
    if not pulumi.runtime.is_dry_run():
        _require_root()
    return Machines({node.name: host_of(node, None, adopt=node.adopt, take_over=node.take_over) for node in nodes})


def _require_root() -> None:
    """Before any step: where new ones fail, the Pulumi CLI undoes those of a head node that was reached by SSH."""
    if os.geteuid() == 0:
        return
    try:
        asked = subprocess.run(["sudo", "-n", "true"], capture_output=True, text=True, check=False)
        said = "" if asked.returncode == 0 else asked.stderr.strip() or "it gave no root"
    except OSError as error:
        said = str(error)
    if said:
        raise pulumi.RunError(
            "this machine is the head node (its site is of kind local), and steps on it need root, but `sudo -n true` "
            f"fails here ({said}); give {getpass.getuser()} password-less sudo (a line `NAME ALL=(ALL) NOPASSWD: ALL` "
            "in /etc/sudoers.d), or run it as root"
        )
