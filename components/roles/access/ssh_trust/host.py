"""SSH between the cluster's machines: host certificates, their renewal, and the head node's access.

Role firewall opens it to the tailnet only, unless it is the way in from elsewhere.
"""

import socket
from collections.abc import Iterator
from dataclasses import dataclass

from components.node import files, systemd
from components.node.failure import Failure
from components.node.log import STATE_DIR, note
from components.node.run import attempt, succeeds
from components.node.step.main import keep
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.access.ssh_trust import certificate, sshd
from components.roles.access.ssh_trust.ask import MEMBERS, ssh_as_root
from components.roles.access.ssh_trust.certificate import (
    HOST_KEY_FILE,
    LEAVE_KEY_FILE,
    ensure_timer,
    public_key,
    show_certificate,
    trust_authorities,
)

OWN_CONF = "/etc/ssh/sshd_config.d/00-tailrack.conf"
_KEYS_ONLY = """# Written by tailrack, which brought this SSH server.
PasswordAuthentication no
KbdInteractiveAuthentication no"""
_CONF = "/etc/ssh/sshd_config.d/tailrack-leave.conf"
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
# Seconds. The SSH options detect a silent node; on a busy one systemd may wait 90 s for each of several daemons.
_LEAVING_LIMIT = 300
_CONNECT_SECONDS = 5
_FILES = (
    "/etc/ssh/tailrack_authority.pub",
    "/etc/ssh/tailrack_leave_key",
    "/etc/ssh/ssh_host_ed25519_key-cert.pub",
    "/etc/ssh/sshd_config.d/tailrack.conf",
    "/etc/ssh/sshd_config.d/tailrack-leave.conf",
    "/etc/ssh/tailrack_host_key",
    "/etc/ssh/tailrack_host_key.pub",
    "/etc/ssh/tailrack_host_key-cert.pub",
    "/etc/ssh/tailrack_sshd_config",
)


def join(step: Step) -> None:
    """Report both, and keep sshd running."""
    systemd.write_restart("ssh.service")
    step.result("sshd_port", sshd.port())
    step.result("host_key", public_key(HOST_KEY_FILE) or None)


def machine(step: Step) -> None:
    """Configure and start such a server."""
    if not sshd.came_with_us():
        return
    if files.write(OWN_CONF, _KEYS_ONLY):
        sshd.reload_valid()
    # Its package started nothing (install_unstarted). Some distributions start it by a socket.
    unit = "ssh.socket" if succeeds("systemctl", "is-enabled", "-q", "ssh.socket") else "ssh.service"
    if not attempt("systemctl", "enable", "-q", "--now", unit).ok:
        note(f"{unit} does not start: does something else listen at port {sshd.port()}?")


@dataclass(frozen=True)
class GivenValues:
    """The values that the head node gives a machine.

    node_authorities          the list for certificate.py
    node_certificate          for this machine's SSH host key
    node_leave_plan, node_leave_values   plan and values of the leave program, as JSON
    """

    node_authorities: str
    node_certificate: str
    node_leave_plan: str
    node_leave_values: str


@dataclass(frozen=True)
class NodeValues(GivenValues):
    """The head node too, and the share's mount point, where this machine's next certificates are."""

    head_address: str
    share_mount: str


def node(step: Step, values: NodeValues) -> None:
    """Let the head node ask before anything else, so that it can make this machine leave."""
    let_the_head_ask(step, values)
    ensure_timer(
        "tailrack-certificate",
        f"/usr/local/sbin/tailrack-certificate {values.share_mount}/.tailrack/certificates/{step.host}",
    )


def let_the_head_ask(step: Step, values: NodeValues) -> None:
    """Accept requests of the head node, and present the certificate: sshd reads both with one reload.

    The keys are in a separate file and are the only way for the head node's address to become root: one key for
    leaving, and certificates for tailrack-ask.
    """
    accept_requests(values, values.head_address)
    # These commands must work even where root may not log in.
    changed = files.write(_CONF, _LOGIN.format(address=values.head_address))
    show_certificate(values.node_certificate)
    # If that installed a newer certificate, sshd has read this file too.
    if changed and not files.is_newer(certificate.SHOWN, _CONF):
        sshd.reload_valid()
    _require_heard(step.host, values.head_address)


def accept_requests(values: GivenValues, address: str) -> None:
    """Write the program with which the machine leaves, and let the head node run it from an address."""
    keep("leave", values.node_leave_plan, values.node_leave_values)
    trust_authorities(values.node_authorities)
    certificate.let_ask(address)


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


def head(step: Step) -> None:
    """Create and trust."""
    from components.roles.access.ssh_trust.authority import ensure_authority, trust_own

    ensure_authority()
    trust_own()


@dataclass(frozen=True)
class MemberValues:
    """A node. `node_adopt`: whether it stays in its tailnet."""

    node_name: str
    node_address: str
    node_host_key: str
    node_sshd_port: str
    node_adopt: bool


def register(step: Step, values: MemberValues) -> None:
    """Report the authorities and the node's certificate."""
    from components.roles.access.ssh_trust.authority import certificate_for, trusted

    step.take_lock()
    # tailrack-ask reads it.
    files.write(f"{MEMBERS}/{values.node_name}/sshd_port", values.node_sshd_port)
    # Role names has recorded its address already, so a later change of the authorities reaches this node too.
    step.result("authorities", trusted() or None)
    step.result("certificate", certificate_for(values.node_name, values.node_address, values.node_host_key))


def release(step: Step, values: MemberValues) -> None:
    """Make the node leave. A machine that is off cannot be asked; the cluster forgets it all the same."""
    from components.roles.network.tailnet.host import GONE_LIMIT, is_logged_out

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


def forget(step: Step, node_name: str) -> None:
    """Remove the node's records."""
    files.remove_folder(f"{MEMBERS}/{node_name}")


def _ask_to_leave(values: MemberValues) -> bool:
    """Return whether the node left. The logout at the end may cut the connection."""
    from components.roles.access.ssh_trust.authority import LEAVE_KEY

    place = (values.node_name, values.node_address, values.node_sshd_port)
    return attempt(*ssh_as_root(LEAVE_KEY, *place, "ConnectTimeout=10"), limit=_LEAVING_LIMIT).ok


def _answers(values: MemberValues) -> bool:
    try:
        socket.create_connection((values.node_address, int(values.node_sshd_port)), _CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


def services(step: Step, head_address: str, share_path: str, ssh_trust_generation: str) -> None:
    """Show, renew and replace certificates.

    share_path   the share, from which machines fetch their next certificate
    """
    from components.roles.access.ssh_trust.authority import SIGN, Turn, certificate_for, turn_to

    folder = f"{share_path}/.tailrack/certificates"

    def show_own() -> None:
        show_certificate(certificate_for(step.host, head_address, public_key(HOST_KEY_FILE)))

    show_own()
    ensure_timer(
        "tailrack-sign",
        f"{SIGN} publish {folder}",
        f"/usr/local/sbin/tailrack-certificate {STATE_DIR}/members/{step.host}/key-cert.pub",
    )
    note(f"SSH authority of generation '{ssh_trust_generation}'")
    turn_to(step, Turn(step.host, ssh_trust_generation, folder, show_own))


def leave(step: Step) -> None:
    """Remove the files first: systemd may fail."""
    for path in _FILES:
        files.remove(path)
    systemd.retire(*(f"tailrack-{name}.{kind}" for name in ("sign", "certificate") for kind in ("timer", "service")))
    if files.exists(OWN_CONF):
        # Open sessions continue, including the head node's.
        attempt("systemctl", "disable", "-q", "--now", "ssh.socket", "ssh.service")
        files.remove(OWN_CONF)
    sshd.reload()
