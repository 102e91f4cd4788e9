"""Check that the machine can join: Slurm uses only the tailnet, so the tailnet must be a kernel interface."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterator

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.tailnet import tailscale
from components.roles.tailnet.dns import dns_servers
from components.roles.tailnet.membership import (
    MembershipValues,
    let_leaving_end,
    refuse_another_tailnet,
    refuse_snap,
    require_adoptable,
    require_new_enough,
)
from components.roles.tailnet.tailscale import Tailscale

_TUN = "/dev/net/tun"
_SHARED = ipaddress.IPv4Network("100.64.0.0/10")
_OWN_INTERFACE, _OWN_DNS = "tailscale0", "100.100.100.100"


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
