"""Preflight of one node, as a plain user in a job of all nodes: prints one line of findings and always ends well.

The argument is JSON: {"nodes": {name: {"address": tailnet address, "site": site, "gpus": "h200:8" or ""}},
"fabric": {site: interface or ""}}. A check that fails in an unforeseen way is a finding of its own.
"""

from __future__ import annotations

import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.validation.preflight import adapters, foreign, gpus, neighbour, node, nvlink, pci, tailnet, xids
from components.validation.preflight.findings import Finding, finding, line
from components.validation.preflight.health import Health, health_of

HEALTH = Path("/run/tailrack/health.json")
OLD_SECONDS = 3600
# The node's own step has just asked for the first look when the first measurement comes.
FIRST_LOOK_SECONDS = 45
LOOKER = "tailrack-health.service"
COMMAND_SECONDS = 10
# For a predecessor that is late.
LINGER_SECONDS = neighbour.MEET_SECONDS
UNIT = "see 'journalctl -u tailrack-health' on the node, and 'systemctl start tailrack-health' there"


@dataclass(frozen=True)
class Asked:
    """This node among all of the job: its name, its GPUs, the next node of the ring and the interface they share."""

    name: str
    gpus: int
    peer: neighbour.Peer | None
    same_site: bool
    fabric: str
    """The interface of the fabric that it shares with the next node; empty where there is none but the tailnet."""
    own_fabric: str
    """The one of its own site."""


def asked_of(argument: str, name: str) -> Asked:
    """Read the argument for one node. Raises ValueError, KeyError or TypeError for what is not of its form."""
    whole: dict[str, Any] = json.loads(argument)
    nodes = whole["nodes"]
    own = nodes[name]
    names = sorted(nodes)
    following = names[(names.index(name) + 1) % len(names)]
    fabric = str(whole["fabric"].get(own["site"]) or "")
    fabric = "" if fabric == "tailscale0" else fabric
    same_site = nodes[following]["site"] == own["site"]
    count = re.fullmatch(r"[a-z][a-z0-9-]*:(\d{1,3})", str(own["gpus"]), re.ASCII)
    return Asked(
        name=name,
        gpus=int(count[1]) if count else 0,
        peer=neighbour.Peer(following, str(nodes[following]["address"])) if following != name else None,
        same_site=same_site,
        fabric=fabric if same_site else "",
        own_fabric=fabric,
    )


def said_by(*command: str) -> str:
    """What a command prints; empty where it fails or takes too long."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def guarded(check: str, make: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of a check; where it fails in a way nobody thought of, that."""
    try:
        return list(make())
    except Exception as error:  # noqa: BLE001  one check must not take the others with it
        return [finding("info", check, f"could not be looked at: {type(error).__name__}", "report this, please")]


def check_health_file(health: Health | None, promised: int, now: float) -> Iterable[Finding]:
    """Whether the collector has looked, and lately."""
    if not promised:
        return
    if health is None:
        yield finding("warning", gpus.HEALTH, f"nobody has looked at the GPUs: no {HEALTH} of root's", UNIT)
    elif now - health.time > OLD_SECONDS:
        minutes = int(now - health.time) // 60
        yield finding("warning", gpus.HEALTH, f"the last look at the GPUs is {minutes} minutes old", UNIT)


def health_soon(path: Path, promised: int) -> Health | None:
    """What the collector wrote; waited for only while its first look goes on: one that is dead is not waited for."""
    end = time.monotonic() + FIRST_LOOK_SECONDS
    while (health := health_of(path)) is None and promised and time.monotonic() < end:
        if said_by("systemctl", "is-active", LOOKER).strip() != "activating":
            return health_of(path)  # it may have ended just now
        time.sleep(0.5)
    return health


def checks(asked: Asked, health: Health | None) -> list[Finding]:
    """All findings about this node itself."""
    looks = health.looks if health else {}
    text = health.output if health else lambda _name: ""
    ports = adapters.read_ports()
    switches = len(pci.nvidia_devices("0680"))
    on_the_bus = pci.nvidia_devices("03")
    virtualization = said_by("systemd-detect-virt").strip()
    virtual = pci.is_virtual(virtualization)
    container = pci.is_virtual(said_by("systemd-detect-virt", "-c")) or False
    controls = pci.read_lspci(text("lspci"))
    count = asked.gpus
    limit = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    active = any(port.active for port in ports)
    cgroups = adapters.text_of(Path("/proc/self/cgroup"))
    wanted: list[tuple[str, Callable[[], Iterable[Finding]]]] = [
        (gpus.HEALTH, lambda: check_health_file(health, count, time.time())),
        (gpus.HEALTH, lambda: gpus.check_gpus(looks.get("nvidia-smi"), count) if count else ()),
        (foreign.FOREIGN, lambda: foreign.check_foreign(foreign.used()) if count else ()),
        (gpus.FABRIC, lambda: gpus.check_fabric_manager(looks.get("fabric manager"), switches) if count else ()),
        (nvlink.NVLINK, lambda: nvlink.check_links(text("nvlink"), switches) if count else ()),
        (xids.XID, lambda: xids.check_xids(text("kernel"))),
        (node.DEVICES, lambda: node.check_driver(on_the_bus, count, container)),
        (node.MEMLOCK, lambda: node.check_memlock(limit, bool(count) or active)),
        (node.SHARED, lambda: node.check_shared(node.free_bytes(Path("/dev/shm")), count)),  # noqa: S108
        (node.CONFINED, lambda: node.check_confined(cgroups, count)),
        (node.DEVICES, lambda: node.check_devices(count)),
        (adapters.PORT, lambda: adapters.check_ports(ports)),
        (adapters.DIRECT, lambda: adapters.check_direct(ports, count)),
        (
            adapters.ROCE,
            lambda: adapters.check_roce(ports, adapters.read_mlxconfig(text("mlxconfig")), controls.ats, bool(virtual)),
        ),
        (pci.ACS, lambda: pci.check_acs(controls, virtual, count)),
        (pci.NUMA, lambda: pci.check_numa(on_the_bus if count else [], ports)),
    ]
    return [each for check, make in wanted for each in guarded(check, make)]


def check_ways(asked: Asked, job: str) -> list[Finding]:
    """All findings about the way to the next node, while the one before looks at the way to this one."""
    if asked.peer is None:
        return []
    peer = asked.peer
    own_address = neighbour.interface_address(asked.own_fabric) if asked.own_fabric else ""
    server = neighbour.Server(asked.name, job, own_address)
    server.start()
    if not server.listens:
        seen = f"none of the ports {', '.join(map(str, neighbour.ports_of(job)))} is free here"
        found = [finding("warning", neighbour.TRANSFER, seen, "see 'ss -tlnp' on the node, and measure again")]
    else:
        found = []
    found += guarded(neighbour.TRANSFER, lambda: neighbour.check_neighbour(peer, job, asked.name, asked.fabric))
    status = said_by("tailscale", "status", "--json")
    found += guarded(
        tailnet.PATH, lambda: tailnet.check_path(status, peer.name, peer.address, same_site=asked.same_site)
    )
    found += guarded(tailnet.TRAFFIC, lambda: tailnet.check_traffic(status))
    if server.listens:
        server.served.wait(LINGER_SECONDS)
    server.stop()
    return found


def main(argument: str) -> int:
    """Print this node's line. The status is 0, whatever was found: findings are no failure of the job."""
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    try:
        asked = asked_of(argument, name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        wrong = finding("warning", "preflight", "its argument does not name this node", "report this, please")
        sys.stdout.write(line(name, [wrong]) + "\n")
        return 0
    job = f"{os.environ.get('SLURM_JOB_ID', 'none')}"
    found = check_ways(asked, job)
    found += guarded("preflight", lambda: checks(asked, health_soon(HEALTH, asked.gpus)))
    # One write, so that lines of other nodes do not come between.
    sys.stdout.write(line(name, found) + "\n")
    sys.stdout.flush()
    return 0
