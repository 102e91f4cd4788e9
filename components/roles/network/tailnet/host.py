"""A machine's place in the tailnet: check that it can join and reaches the head node, accept it, log out.

Slurm uses only the tailnet, so the tailnet must be a kernel interface. A machine logs out after this program has ended,
because that cuts the head node's connection; the head node and the next join wait until it is gone from the tailnet. An
adopted machine stays in its tailnet.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass

from components.node import files, systemd
from components.node.failure import Failure
from components.node.log import STATE_DIR, note
from components.node.run import attempt, end_group, reading, run
from components.node.step.step import Step
from components.node.waiting import wait_until
from components.roles.base.clock.host import compare_with_head
from components.roles.network.tailnet import tailscale
from components.roles.network.tailnet.login import KEYRING, SOURCE_LIST, dns_servers, remove_keys
from components.roles.network.tailnet.membership import (
    MembershipValues,
    let_leaving_end,
    refuse_another_tailnet,
    refuse_snap,
    require_adoptable,
    require_new_enough,
)
from components.roles.network.tailnet.tailscale import Tailscale, peers_at

_TUN = "/dev/net/tun"
_SHARED = ipaddress.IPv4Network("100.64.0.0/10")
_OWN_INTERFACE, _OWN_DNS = "tailscale0", "100.100.100.100"
# One answer by any path: the search for a direct one takes seconds, and tailscaled continues it in the background.
_PING = ("timeout", "10", "tailscale", "ping", "--c", "1", "--timeout", "3s", "--until-direct=false")
_PONG = b"pong from "
_PING_SECONDS = 12
# slurmd's port. slurmd need not run yet: a closed port refuses at once, a firewall drops silently.
_NODE_PORT = 6818
# The list follows the control server with some delay.
LISTED_SECONDS = 30
_ANSWER_SECONDS = 20
_TRY_SECONDS = 5
# Seconds from a node's answer until it is gone: its logout waits for the control server.
GONE_LIMIT = 90


def check(step: Step, values: MembershipValues) -> None:
    """Refuse a machine that cannot join, or that is in another tailnet."""
    host = step.host
    if not _tun_works():
        raise Failure(
            f"{_TUN} does not work; Slurm needs the tailnet as a kernel interface",
            f"load the module tun, or give the container {_TUN} and NET_ADMIN",
        )
    refuse_snap(host)
    there = tailscale.is_installed()
    if there:
        require_new_enough(host)
        let_leaving_end(host)
    now = Tailscale()
    if values.node_adopt:
        require_adoptable(now, values, host)
        return
    # An adopted machine already works with such addresses.
    _refuse_shared_addresses(host)
    if there:
        refuse_another_tailnet(now, host)


def _tun_works() -> bool:
    try:
        os.close(os.open(files.on_disk("/dev/net/tun"), os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _refuse_shared_addresses(host: str) -> None:
    """Refuse a machine whose own network uses addresses of the tailnet.

    tailscale drops packets from such addresses unless they come through its own interface (util/linuxfw), so SSH or
    DNS would stop in the middle of the join.
    """
    if found := list(_shared_addresses()):
        raise Failure(
            f"this machine's own network uses addresses of {_SHARED} ({', '.join(found)}), which belong to the "
            "tailnet: tailscale would cut it off from them, and with them this connection or all names",
            f"give {host} a network and DNS servers outside {_SHARED} (DNS: /etc/systemd/resolved.conf), or leave it "
            "out",
        )


def _shared_addresses() -> Iterator[str]:
    addresses, routes = (attempt("ip", "-4", "-o", what, "show") for what in ("address", "route"))
    if not (addresses.ok and routes.ok):
        note("ip shows nothing here")
    for words in map(str.split, addresses.output.splitlines()):
        if words[2:3] == ["inet"] and words[1] != _OWN_INTERFACE and _is_shared(words[3]):
            yield f"{words[3]} at {words[1]}"
    for words in map(str.split, routes.output.splitlines()):
        device = words[words.index("dev") + 1] if "dev" in words[:-1] else ""
        if not words or device == _OWN_INTERFACE:
            continue
        if _is_shared(words[0]):
            yield f"the route to {words[0]} at {device}"
        elif words[1:2] == ["via"] and _is_shared(words[2]):
            yield f"the gateway {words[2]} at {device}"
    for server in dns_servers():
        if _is_shared(server) and server != _OWN_DNS:
            yield f"the DNS server {server}"


def _is_shared(text: str) -> bool:
    try:
        return ipaddress.IPv4Interface(text).ip in _SHARED
    except ValueError:
        return False


def check_path(step: Step, head_address: str) -> None:
    """Require an answer of the head node."""
    address = head_address
    if not wait_until(lambda: _pongs(address), _PING_SECONDS):
        raise Failure(
            f"the head node does not answer on the tailnet at {address}",
            f"see 'tailscale netcheck' and 'tailscale ping {address}' on {step.host}; outgoing UDP 41641 or TCP 443 "
            "must be open",
        )
    compare_with_head(address, step.host)


def _pongs(address: str) -> bool:
    """Return whether a machine answers. tailscale would sleep for a second after the answer, so it is ended."""
    process = reading(*_PING, address)
    try:
        return any(line.startswith(_PONG) for line in process.stdout or ())
    finally:
        end_group(process)


@dataclass(frozen=True)
class NodeValues:
    """A node as it reports itself.

    node_firewall   firewalls found on the node, for the message; empty if none
    """

    node_name: str
    node_address: str
    node_firewall: str


def register(step: Step, values: NodeValues) -> None:
    """Check that the node is where it says, and answers; at the end of the step report the path to it."""
    name, address = values.node_name, values.node_address
    if not wait_until(lambda: _is_at_its_address(name, address), LISTED_SECONDS):
        raise Failure(
            f"the tailnet has no machine {name} at {address}, the address that {name} reports",
            f"see 'tailscale status' on {step.host}; a name that was taken already ({name}-1) is freed by removing the "
            "old machine there",
        )
    _require_answer(values)
    step.later.append(lambda: step.result("path", _path_to(address)))


def _path_to(address: str) -> str:
    """Return the path that tailscaled has found by now: `direct`, `peer-relay`, or else `relay`, the slowest."""
    from components.validation.preflight.tailnet import path_of

    path = next(map(path_of, peers_at(address) or ()), "")
    return path if path in ("direct", "peer-relay") else "relay"


def _is_at_its_address(name: str, address: str) -> bool:
    """Return whether the head node's list of the tailnet has this name once at this address."""
    names = [str(peer.get("DNSName", "")).partition(".")[0] for peer in peers_at(address) or ()]
    return names.count(name) == 1


def _answers(address: str) -> bool:
    """Return whether anything answers over the tailnet, also with a refusal."""
    try:
        with socket.create_connection((address, _NODE_PORT), _TRY_SECONDS):
            return True
    except OSError as error:
        return error.errno == errno.ECONNREFUSED


def _require_answer(values: NodeValues) -> None:
    """Require an answer. Slurm's jobs arrive this way, so a node that the head node cannot reach must not count."""
    if wait_until(lambda: _answers(values.node_address), _ANSWER_SECONDS):
        return
    found = f" (found: {values.node_firewall.replace('+', ', ')})" if values.node_firewall else ""
    raise Failure(
        f"nothing answers on {values.node_name} at its tailnet address, {values.node_address} port {_NODE_PORT}, "
        f"although it is in the tailnet: a firewall on the machine{found}, tailscale's shields-up or the tailnet's "
        "policy blocks the head node",
        f"on {values.node_name} allow input on tailscale0: 'ufw allow in on tailscale0', 'firewall-cmd --permanent "
        "--zone=trusted --add-interface=tailscale0', or a rule 'iifname tailscale0 accept' before the one that drops "
        "('nft list ruleset'); 'tailscale set --shields-up=false' there; and see that the tailnet's policy lets the "
        "cluster's machines reach one another on all ports",
    )


def leave(step: Step, node_adopt: bool) -> None:
    """Give up the membership that the cluster brought."""
    remove_keys()
    systemd.retire("tailrack-tailnet.service")
    if node_adopt:
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


def is_logged_out(address: str) -> bool:
    """Return whether the node with an address is not in the tailnet's list, or in it without a login.

    Machines that are not ephemeral stay listed.
    """
    peers = peers_at(address)
    return peers is not None and not any(peer.get("Online") and not peer.get("Expired") for peer in peers)
