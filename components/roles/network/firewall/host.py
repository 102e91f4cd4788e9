"""The cluster's firewall rules: its ports are open on the tailnet's interface and on loopback only.

The rules are in a separate nftables table. They do not read or change other rules and close no other port. They are
loaded before the daemons start, also at boot. The kernel does not assign these ports to programs that ask for any free
port, as jobs do on a site's fabric, and lets only the account of a port's daemon bind it (Role.holders).
"""

from dataclasses import dataclass

from components.node import files, systemd
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.access.ssh_trust import sshd
from components.roles.network.firewall.ports import HeldPorts, hold_ports, release_ports, reserve_ports

UNIT = "tailrack-firewall.service"
# The table is declared, deleted and created in one transaction, so that the rules never lapse. A local user can send
# from a loopback address, which some daemons trust, to another address of this machine.
_TABLE = """# Written by tailrack.
table inet tailrack {{}}
delete table inet tailrack
table inet tailrack {{
    chain input {{
        type filter hook input priority -10; policy accept;
        iifname "lo" ip saddr 127.0.0.0/8 ip daddr != 127.0.0.0/8 {closed}
        iifname "lo" ip6 saddr ::1 ip6 daddr != ::1 {closed}
        iifname {{ "lo", "tailscale0" }} accept
{relay}        # Only new connections: answers to connections from such a port pass.
        {closed}
{udp}    }}
}}"""


@dataclass(frozen=True)
class FirewallValues(HeldPorts):
    """The ports of the cluster.

    firewall_ports, firewall_udp_ports   ports and ranges of the cluster's daemons, separated by commas
    node_open_ports                      those that other programs use here (a fact of `prepare`)
    node_relay_port                      UDP port if this machine is the tailnet's relay; empty otherwise
    """

    firewall_ports: str
    firewall_udp_ports: str
    node_open_ports: list[str]
    node_relay_port: str


def machine(step: Step, values: FirewallValues) -> None:
    """Reserve, close and hold the ports."""
    reserve_ports(values.firewall_ports, values.node_relay_port)
    files.write("/etc/tailrack/firewall.nft", _rules(step, values))
    systemd.reload(UNIT)
    systemd.enable(UNIT)
    # Always, because a run that was cut off may have written the files without loading them.
    hold_ports(step, values)
    held = attempt("/usr/local/lib/tailrack/hold-ports", keep_errors=True)
    if not held.ok:
        error = (held.output + held.errors).strip() or "hold-ports failed"
        note(
            f"{error}: other accounts can bind the cluster's ports while a daemon is down, but cannot answer "
            "connections"
        )


def _rules(step: Step, values: FirewallValues) -> str:
    tcp = _closed(values.firewall_ports, values.node_open_ports)
    udp = _closed(values.firewall_udp_ports, values.node_open_ports)
    # No one used SSH before on a machine whose steps are local if the cluster installed its SSH server.
    if files.exists(step.here_file) and sshd.came_with_us():
        tcp += f", {sshd.port()}"
    return _TABLE.format(
        closed=f"tcp dport {{ {tcp} }} tcp flags & (syn | ack) == syn drop",
        relay=f"        udp dport {values.node_relay_port} accept\n" if values.node_relay_port else "",
        # nft rejects an empty set.
        udp=f"        udp dport {{ {udp} }} drop\n" if udp else "",
    )


def _closed(ports: str, open_ports: list[str]) -> str:
    return ", ".join(port for port in ports.split(", ") if port not in open_ports)


def leave(step: Step) -> None:
    """Let the kernel assign the ports again. The rules go with their unit."""
    release_ports()
