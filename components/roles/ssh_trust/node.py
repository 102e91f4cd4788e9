"""Trust the cluster's authority, present a certificate, and accept the head node's requests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.files import File
from components.node.step.kept import FOLDER as PLANS
from components.node.step.step import Step
from components.roles.ssh_trust import authorities, sshd
from components.roles.ssh_trust.authorities import LEAVE_KEY_FILE, LEAVE_PROGRAM
from components.roles.ssh_trust.trust import ensure_timer, show_certificate, trust_authorities

_CONF = "/etc/ssh/sshd_config.d/tailrack-leave.conf"


@dataclass(frozen=True)
class NodeValues:
    """The head node, and what it gives this machine.

    nfs_exports_mount         mount point of the share, which has this machine's next certificates
    node_authorities          the list for authorities.py
    node_certificate          for this machine's SSH host key
    node_leave_plan, node_leave_values   plan and values of the leave program, as JSON
    ssh_trust_leave_command   text of the leave program
    """

    head_address: str
    nfs_exports_mount: str
    node_authorities: str
    node_certificate: str
    node_leave_plan: str
    node_leave_values: str
    ssh_trust_leave_command: str


def node(step: Step, values: NodeValues) -> None:
    """Let the head node ask before anything else, so that it can make this machine leave."""
    let_the_head_ask(step, values)
    show_certificate(values.node_certificate)
    ensure_timer(
        "tailrack-certificate",
        f"/usr/local/sbin/tailrack-certificate {values.nfs_exports_mount}/.tailrack/certificates/{step.host}",
    )


def let_the_head_ask(step: Step, values: NodeValues) -> None:
    """Accept requests of the head node.

    The keys are in a separate file and are the only way for the head node's address to become root: one key for
    leaving, and certificates for tailrack-ask.
    """
    write_leave_program(values.node_leave_plan, values.node_leave_values, values.ssh_trust_leave_command)
    trust_authorities(values.node_authorities)
    authorities.let_ask(values.head_address)
    # These commands must work even where root may not log in.
    if files.write(_CONF, _LOGIN.format(address=values.head_address)):
        sshd.reload_valid()
    _require_heard(step.host, values.head_address)


def write_leave_program(plan: str, values: str, command: str) -> None:
    """Write the program with which the machine leaves, and its plan and values."""
    files.write_all([File(f"{PLANS}/leave.json", f"{plan}\n{values}"), File(LEAVE_PROGRAM, command, 0o755)])


_LOGIN = f"""# Written by tailrack: the head node may run tailrack-leave and tailrack-answer, and nothing else as root.
Match User root Address {{address}}
    PermitRootLogin forced-commands-only
    PubkeyAuthentication yes
    AuthenticationMethods publickey
    AuthorizedKeysFile {LEAVE_KEY_FILE}
    AllowUsers root
    AllowGroups *
    DenyUsers nobody
    DenyGroups nobody"""
# The settings that sshd must use then.
_HEARD = (
    "pubkeyauthentication yes",
    "authenticationmethods publickey",
    f"authorizedkeysfile {LEAVE_KEY_FILE}",
    "allowusers root",
)


def _require_heard(host: str, address: str) -> None:
    """Check sshd's settings.

    sshd uses the first value of a key, and a file of the machine's owner may come before ours.
    """
    settings = sshd.query("-T", "-C", f"user=root,host={address},addr={address}").splitlines()
    if wrong := ", ".join(_wrong(settings)):
        raise Failure(
            f"sshd on {host} would reject the head node's request to leave: for root from {address} it uses {wrong}",
            "find the lines with 'grep -rn -i match /etc/ssh/sshd_config /etc/ssh/sshd_config.d' "
            f"on {host} and exclude root from that address; then run up again",
        )


def _wrong(settings: list[str]) -> Iterator[str]:
    for setting in _HEARD:
        if setting not in settings:
            key = setting.split(" ")[0]
            yield ", ".join(line for line in settings if line.startswith(f"{key} ")) or f"no {key}"
    if "permitrootlogin no" in settings:
        yield "permitrootlogin no"
