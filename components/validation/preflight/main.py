"""Preflight of one node, as a plain user in a job of all nodes: print one line of findings and always exit with 0.

The argument is JSON: {"nodes": {name: {"address": tailnet address, "site": site, "gpus": "h200:8" or ""}}, "fabric":
{site: interface or ""}}.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.validation.preflight import neighbour, tailnet
from components.validation.preflight.adapters import data_ports
from components.validation.preflight.checks import JOB, Machine, guarded, run
from components.validation.preflight.findings import HEALTH, Finding, Health, finding, health_of, line
from components.validation.this_node import address_of, node_name, stdout_of

# The node's own step starts the first check of the GPUs just before the first measurement begins.
FIRST_CHECK_SECONDS = 45
COLLECTOR = "tailrack-health.service"
# For a previous node of the ring that is late.
LINGER_SECONDS = neighbour.MEET_SECONDS


@dataclass(frozen=True)
class Task:
    """This node's part in the job.

    peer        the next node; None if it is the only one
    fabric      fabric interface of its site; empty if that is the tailnet
    same_site   whether the next node is in its site
    serves      whether the previous node is
    """

    name: str
    gpus: int
    peer: neighbour.Peer | None
    fabric: str
    same_site: bool
    serves: bool


def task_of(argument: str, name: str) -> Task:
    """Read one node's part from the argument. Raises ValueError, KeyError or TypeError if it is malformed."""
    data: dict[str, Any] = json.loads(argument)
    nodes = data["nodes"]
    site, names = nodes[name]["site"], sorted(nodes)
    place = names.index(name)
    previous, following = names[place - 1], names[(place + 1) % len(names)]
    fabric = str(data["fabric"].get(site) or "")
    count = re.fullmatch(r"[a-z][a-z0-9-]*:(\d{1,3})", str(nodes[name]["gpus"]), re.ASCII)
    return Task(
        name,
        int(count[1]) if count else 0,
        neighbour.Peer(following, str(nodes[following]["address"])) if following != name else None,
        "" if fabric == "tailscale0" else fabric,
        nodes[following]["site"] == site,
        nodes[previous]["site"] == site,
    )


def health_soon(path: Path, promised: int) -> Health | None:
    """Return the collector's data; wait only while the collector runs for the first time."""
    end = time.monotonic() + FIRST_CHECK_SECONDS
    while (health := health_of(path)) is None and promised and time.monotonic() < end:
        if stdout_of("systemctl", "is-active", COLLECTOR).strip() != "activating":
            return health_of(path)  # it may have ended since
        time.sleep(0.5)
    return health


def check_paths(task: Task, job: str) -> list[Finding]:
    """Check the path to the next node, while the previous node checks the path to this one."""
    if task.peer is None:
        return []
    peer = task.peer
    own_address = ""
    with suppress(OSError):  # it has no such interface, or that has no address
        own_address = address_of(task.fabric)
    ports = neighbour.speed_ports(data_ports(health_of(HEALTH)))
    rdma_servers = neighbour.serve_speed(job, ports) if task.serves else []
    server = neighbour.Server(task.name, job, own_address)
    items = []
    if not server.listens:
        seen = f"none of the ports {', '.join(map(str, neighbour.ports_of(job)))} is free on this node"
        items.append(finding("warning", neighbour.TRANSFER, seen, "see 'ss -tlnp' on the node, then measure again"))
    shared = task.fabric if task.same_site else ""
    items += guarded(neighbour.TRANSFER, lambda: neighbour.check_neighbour(peer, job, task.name, shared))
    if task.same_site:
        items += guarded(neighbour.SPEED, lambda: neighbour.check_speed(peer, job, ports))
    status = stdout_of("tailscale", "status", "--json")
    items += guarded(
        tailnet.PATH, lambda: tailnet.check_path(status, peer.name, peer.address, same_site=task.same_site)
    )
    items += guarded(tailnet.TRAFFIC, lambda: tailnet.check_traffic(status))
    if server.listens:
        server.served.wait(LINGER_SECONDS)
    server.stop()
    neighbour.end_servers(rdma_servers, LINGER_SECONDS)
    return items


def main(arguments: Sequence[str]) -> int:
    """Print this node's line and return 0: findings are no failure of the job."""
    name = node_name()
    try:
        task = task_of(arguments[0], name)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        wrong = finding("warning", "preflight", "the argument does not name this node", "please report this")
        sys.stdout.write(line(name, [wrong]) + "\n")
        return 0
    items = check_paths(task, os.environ.get("SLURM_JOB_ID", "none"))
    items += guarded("preflight", lambda: run(Machine(task.gpus, health_soon(HEALTH, task.gpus)), JOB))
    # One write, so that lines of other nodes do not come between.
    sys.stdout.write(line(name, items) + "\n")
    sys.stdout.flush()
    return 0
