"""Keep the cluster's ports for its daemons.

The kernel assigns none of them to a program that asks for any free port: NCCL and MPI listen on such ports on the
fabric, where one in thirty would be closed. Reservations of other programs stay. No other account gets a port while its
daemon restarts or has not started.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from components.node import files, kernel
from components.node.failure import Failure
from components.node.log import STATE_DIR, note
from components.node.passwd import user_named
from components.node.run import attempt
from components.node.step.step import Step

_SETTING = "/proc/sys/net/ipv4/ip_local_reserved_ports"
# The value before the cluster.
_BEFORE = f"{STATE_DIR}/reserved-ports"
_CONF = "/etc/sysctl.d/90-tailrack.conf"
PORTS, PORTS_RULES = "/etc/tailrack/ports", "/etc/tailrack/ports.nft"
# The uids that systemd gives to units with DynamicUser=.
_DYNAMIC_UIDS = (61184, 65519)
# Accounts of the system, as Prometheus' and root's, have other uids than users.
_PRIVATE = (
    "        tcp dport {port} tcp flags & (syn | ack) == syn meta skuid >= 1000 "
    f"meta skuid != {_DYNAMIC_UIDS[0]}-{_DYNAMIC_UIDS[1]} drop\n"
)
_TABLE = """# Written by tailrack.
table inet tailrack_ports {{}}
delete table inet tailrack_ports
table inet tailrack_ports {{
    chain output {{
        type filter hook output priority -10; policy accept;
{private}        tcp flags & (syn | ack) != syn | ack accept
{rules}
    }}
}}"""


def reserve_ports(ports: str, relay_port: str) -> None:
    """Reserve ports and ranges, separated by commas, and the relay's port, now and at every boot."""
    reserved = kernel.read(_SETTING).strip()
    if not files.exists(_BEFORE):
        files.write(_BEFORE, reserved)
    wanted = ",".join(filter(None, (reserved, ports.replace(" ", ""), relay_port)))
    if not kernel.write(_SETTING, f"{wanted}\n"):
        note(f"cannot write {_SETTING} here, as in containers: some connections to a job's port may be refused")
        return
    merged = kernel.read(_SETTING).strip()
    files.write(_CONF, f"# Written by tailrack.\nnet.ipv4.ip_local_reserved_ports = {merged}")


def release_ports() -> None:
    """Let the kernel assign the ports again."""
    if not files.exists(_CONF):
        return
    before = files.read(_BEFORE)
    if before is not None:
        kernel.write(_SETTING, before)
    files.remove(_CONF)


@dataclass(frozen=True)
class PortHolder:
    """A port and its account on `all` machines or on the `head` node alone (components/roles/role.py, Holder)."""

    port: str
    account: str
    machines: str
    private: bool


@dataclass(frozen=True)
class HeldPorts:
    """The ports of the cluster's daemons, and the head node's name."""

    firewall_holders: list[PortHolder]
    firewall_head: str


@dataclass(frozen=True)
class _Held:
    port: str
    first: int
    last: int
    kernel: bool


def hold_ports(step: Step, values: HeldPorts) -> None:
    """Write the ports and load them with the rules of the phase `machine`.

    Other roles call this before they start a daemon with a new account.
    """
    held = [
        _held(holder)
        for holder in values.firewall_holders
        if holder.machines != "head" or step.host == values.firewall_head
    ]
    ports = "\n".join(f"{port.port} {port.first} {port.last}" for port in held)
    files.write(PORTS, f"# Written by tailrack: port, first and last uid that may bind it.\n{ports}")
    rules = "\n".join(_rules(held))
    private = "".join(_PRIVATE.format(port=port.port) for port in values.firewall_holders if port.private)
    files.write(PORTS_RULES, _TABLE.format(rules=rules, private=private))
    if not attempt("systemctl", "reload-or-restart", "tailrack-firewall.service").ok:
        raise Failure(
            "cannot close the cluster's ports on this machine's other networks",
            f"see 'journalctl -u tailrack-firewall' on {step.host}; its kernel must have nf_tables",
        )


def _held(holder: PortHolder) -> _Held:
    """Return a port with uids, because a directory service may not answer at boot.

    A port whose account does not exist yet is root's until `hold_ports` runs again.
    """
    if holder.account == "dynamic":
        return _Held(holder.port, *_DYNAMIC_UIDS, kernel=False)
    user = None if holder.account in ("root", "kernel") else user_named(holder.account)
    uid = user.pw_uid if user else 0
    return _Held(holder.port, uid, uid, kernel=holder.account == "kernel")


def _rules(held: Sequence[_Held]) -> Iterator[str]:
    """Yield rules for kernels that take no BPF program.

    Another account that listens at such a port cannot answer a connection. They also drop answers from sockets without
    an account, because an account that fills its queue of connections makes the kernel send SYN cookies. (Sockets of
    the kernel's NFS server have no account, so its ports only drop the answers of other accounts.)
    """
    for port in held:
        uids = str(port.first) if port.first == port.last else f"{port.first}-{port.last}"
        if port.kernel:
            yield f"        tcp sport {port.port} meta skuid != 0 drop"
        else:
            yield f"        tcp sport {port.port} meta skuid {{ 0{f', {uids}' if port.first else ''} }} accept"
    if ports := ", ".join(port.port for port in held if not port.kernel):
        yield f"        tcp sport {{ {ports} }} drop"
