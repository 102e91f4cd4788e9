"""Hold the cluster's ports for the accounts of its daemons.

No other account gets one while a daemon restarts or has not started.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.passwd import user_named
from components.node.run import attempt
from components.node.step.step import Step

PORTS, PORTS_RULES = "/etc/tailrack/ports", "/etc/tailrack/ports.nft"
# The uids that systemd gives to units with DynamicUser=.
_DYNAMIC_UIDS = (61184, 65519)


@dataclass(frozen=True)
class PortHolder:
    """A port and its account on `all` machines or on the `head` node alone (components/roles/role.py, Holder)."""

    port: str
    account: str
    machines: str


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
    files.write(PORTS_RULES, _TABLE.format(rules=rules))
    if not attempt("systemctl", "reload-or-restart", "tailrack-firewall.service").ok:
        raise Failure(
            "cannot close the cluster's ports on this machine's other networks",
            f"see 'journalctl -u tailrack-firewall' on {step.host}; its kernel must have nf_tables",
        )


_TABLE = """# Written by tailrack.
table inet tailrack_ports {{}}
delete table inet tailrack_ports
table inet tailrack_ports {{
    chain output {{
        type filter hook output priority -10; policy accept;
        tcp flags & (syn | ack) != syn | ack accept
{rules}
    }}
}}"""


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
