"""Log out of the tailnet, after this program has ended, because that cuts the head node's connection.

The head node and the next join wait until the machine is gone from the tailnet. An adopted machine stays in its
tailnet.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from components.node import files, systemd
from components.node.run import run
from components.node.step.step import STATE_DIR, Step
from components.roles.tailnet.join import KEYRING, SOURCE_LIST, remove_keys


@dataclass(frozen=True)
class LeaveValues:
    """Whether the machine was in the tailnet before."""

    node_adopt: bool


def leave(step: Step, values: LeaveValues) -> None:
    """Give up the membership that the cluster brought."""
    remove_keys()
    systemd.retire("tailrack-tailnet.service")
    if values.node_adopt:
        return
    # The package stays, like all others; tailrack added its package source.
    if "tailscale" in files.lines(f"{STATE_DIR}/packages"):
        files.remove(SOURCE_LIST)
        files.remove(KEYRING)
    started_before = "enabled" in files.lines(f"{STATE_DIR}/tailnet-daemon")
    rest = "systemctl restart tailscaled" if started_before else "systemctl disable --now tailscaled"
    # The one second lets the SSH session send its last output. Until the end the machine still counts as the cluster's
    # and can be asked to leave again.
    log_out = (
        f"timeout 20 tail --pid={os.getpid()} -s 0.1 -f /dev/null; sleep 1; timeout 60 tailscale logout; "
        f"systemctl stop tailscaled; rm -f /var/lib/tailscale/tailscaled.state; {rest}; rm -f "
        "/var/lib/tailrack/tailnet* /usr/local/sbin/tailrack-leave; rmdir /var/lib/tailrack"
    )
    run("systemd-run", "-q", "--collect", "--unit=tailrack-logout", "/bin/sh", "-c", log_out)
