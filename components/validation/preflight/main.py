"""Preflight of one node, as a plain user in a job of all nodes: prints one line of findings and always ends well.

The argument is JSON: {"nodes": {name: {"address": tailnet address, "site": site, "gpus": "h200:8" or ""}},
"fabric": {site: interface or ""}}. A check that fails in an unforeseen way is a finding of its own.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.validation.preflight import neighbour, tailnet
from components.validation.preflight.checks import HEALTH, JOB, Machine, guarded, run, said_by
from components.validation.preflight.findings import Finding, finding, line
from components.validation.preflight.health import Health, health_of

# The node's own step has just asked for the first look when the first measurement comes.
FIRST_LOOK_SECONDS = 45
LOOKER = "tailrack-health.service"
# For a predecessor that is late.
LINGER_SECONDS = neighbour.MEET_SECONDS


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
    return run(Machine(asked.gpus, health), JOB)


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
