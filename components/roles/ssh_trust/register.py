"""Sign a node's SSH host key, and ask the node to leave the cluster on removal."""

from __future__ import annotations

import socket
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.ssh_trust.authority import LEAVE_KEY, certificate_for, trusted
from components.roles.ssh_trust.members import MEMBERS
from components.roles.tailnet.host import GONE_LIMIT, is_logged_out

# Seconds. The SSH options detect a silent node; on a busy one systemd may wait 90 s for each of several daemons.
_LEAVING_LIMIT = 300
_CONNECT_SECONDS = 5


@dataclass(frozen=True)
class MemberValues:
    """A node. `node_adopt`: whether it stays in its tailnet."""

    node_name: str
    node_address: str
    node_host_key: str
    node_sshd_port: str
    node_adopt: bool


@dataclass(frozen=True)
class ForgottenMember:
    """A node that the head node forgets."""

    node_name: str


def register(step: Step, values: MemberValues) -> None:
    """Report the authorities and the node's certificate."""
    step.take_lock()
    # tailrack-ask reads it.
    files.write(f"{MEMBERS}/{values.node_name}/sshd_port", values.node_sshd_port)
    # Role names has recorded its address already, so a later change of the authorities reaches this node too.
    step.result("authorities", trusted() or None)
    step.result("certificate", certificate_for(values.node_name, values.node_address, values.node_host_key))


def release(step: Step, values: MemberValues) -> None:
    """Make the node leave. A machine that is off cannot be asked; the cluster forgets it all the same."""
    name, address = values.node_name, values.node_address
    step.take_lock()
    if _ask_to_leave(values):
        if not values.node_adopt and not wait_until(lambda: is_logged_out(address), GONE_LIMIT):
            raise Failure(
                f"{name} reported that it leaves, but is still in the tailnet after {GONE_LIMIT}s",
                f"see 'journalctl -u tailrack-logout' on {name}, run 'tailrack-leave' as root there, then run the same "
                "command again",
            )
        return
    # It would keep the munge key and register with Slurm again.
    if _answers(values):
        raise Failure(
            f"{name} answers at {address} and did not leave",
            f"run 'tailrack-leave' as root on {name}, then run the same command again",
        )
    note(f"{name} does not answer at {address}: treated as gone. If it comes back, run tailrack-leave there.")


def forget(step: Step, values: ForgottenMember) -> None:
    """Remove the node's records."""
    files.remove_folder(f"{MEMBERS}/{values.node_name}")


def _ask_to_leave(values: MemberValues) -> bool:
    """Return whether the node left. The logout at the end may cut the connection."""
    options = (
        *("IdentitiesOnly=yes", "BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3"),
        *("StrictHostKeyChecking=yes", f"HostKeyAlias={values.node_name}"),
    )
    words = [word for option in options for word in ("-o", option)]
    words = ["-i", LEAVE_KEY, "-p", values.node_sshd_port, *words, f"root@{values.node_address}"]
    return attempt("ssh", *words, limit=_LEAVING_LIMIT).ok


def _answers(values: MemberValues) -> bool:
    try:
        socket.create_connection((values.node_address, int(values.node_sshd_port)), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
