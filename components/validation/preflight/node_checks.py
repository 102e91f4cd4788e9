"""tailrack-checks: run all checks of this node once, as root.

Usage: tailrack-checks [--json | --forget-ports]

It prints a line for each finding, or with --json one object {"node", "time", "boot_id", "findings": [{"severity",
"check", "seen", "remedy"}]}. Exit status: 1 with an error, 2 if the checks cannot run, else 0. --forget-ports: missing
ports are no errors any more.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from components.node.run import attempt
from components.validation.preflight import adapters, checks, xids
from components.validation.preflight.findings import Finding, health_of, worst_first
from components.validation.preflight.gpus import COUNT, DRIVER, HEALTH
from components.validation.preflight.holders import device_numbers
from components.validation.preflight.node import DEVICES
from components.validation.this_node import NOT_RUN, load, save, text_of
from components.validation.untrusted import read_or_default

# Checks of things that a pod's host provides.
_OF_HOST = frozenset({DEVICES, COUNT, DRIVER, HEALTH})
# The collector ends after 70 s.
COLLECT_SECONDS = 80
# The findings of the check at boot (boot_check.py), in Node.of_this_boot.
BOOT_CHECK = "boot-check.json"


@dataclass(frozen=True)
class Node:
    root: Path = Path("/")

    @property
    def boot_id(self) -> str:
        return text_of(self.root / "proc/sys/kernel/random/boot_id")

    @property
    def is_pod(self) -> bool:
        """Whether runit keeps the cluster's programs running (components/node/services.py)."""
        return (self.root / "usr/local/lib/tailrack/supervise").exists()

    @property
    def persistent(self) -> Path:
        """Data that survives a reboot; for root only."""
        return self.root / "var/lib/tailrack/health"

    @property
    def of_this_boot(self) -> Path:
        return self.root / "run/tailrack-private"

    @property
    def shown(self) -> Path:
        """Data that all users may read."""
        return self.root / "run/tailrack"


def _events(node: Node) -> str:
    """Return the lines of this boot's kernel log about GPUs, including lines that its buffer has dropped."""
    path = node.of_this_boot / "kernel-events.json"
    stored = load(path)
    earlier = [(int(number), str(text)) for number, text in stored] if isinstance(stored, list) else []
    events = xids.joined(earlier, xids.read_kmsg(node.root))
    if events != earlier:
        save(path, events)
    return "\n".join(text for _, text in events)


def findings(node: Node) -> list[Finding]:
    """Return all findings about this node, worst first, and store the state for the next check."""
    if node.is_pod:
        return _findings_of_pod(node)
    gpus = len(device_numbers(node.root))
    jobs = node.of_this_boot / "jobs"
    history = read_or_default(adapters.PortHistory, load(node.persistent / "ports.json"))
    machine = checks.Machine(
        gpus,
        health_of(node.shown / "health.json") if gpus else None,
        share=text_of(node.root / "etc/tailrack/share-mounted"),
        events=_events(node),
        port_history=history,
        jobs=len(list(jobs.iterdir())) if jobs.is_dir() else None,
        root=node.root,
    )
    at_boot = load(node.of_this_boot / BOOT_CHECK) or []
    items = worst_first([*at_boot, *checks.run(machine, checks.NODE)])
    updated = adapters.updated_ports(history, machine.ports, time.time())
    if updated != history:
        save(node.persistent / "ports.json", asdict(updated))
    return items


def _findings_of_pod(node: Node) -> list[Finding]:
    gpus = len(device_numbers(node.root))
    health = health_of(node.shown / "health.json") if gpus else None
    items = checks.run(checks.Machine(gpus, health, root=node.root), checks.POD)
    # A pod has no other way to its GPUs' driver and device files.
    restart = "stop the pod and start it again, or rent another one"
    return worst_first(
        {**item, "remedy": restart} if item["severity"] == "error" and item["check"] in _OF_HOST else item
        for item in items
    )


def verdict(node: Node, name: str, items: list[Finding]) -> dict[str, Any]:
    return {"node": name, "time": int(time.time()), "boot_id": node.boot_id, "findings": items}


def collect(node: Node) -> None:
    """Collect the GPUs' present state for the checks, instead of that of some minutes ago."""
    if not device_numbers(node.root) or node.root != Path("/"):
        return
    command = ["/usr/local/sbin/tailrack-health"] if node.is_pod else ["systemctl", "start", "tailrack-health"]
    if attempt(*command, limit=COLLECT_SECONDS, quiet=True).status in NOT_RUN:
        sys.stderr.write("tailrack-health does not end; the checks use its last data\n")


def main(arguments: list[str], node: Node | None = None) -> int:
    node = node or Node()
    if not set(arguments) <= {"--json", "--forget-ports"} or len(arguments) > 1:
        sys.stderr.write("usage: tailrack-checks [--json | --forget-ports]\n")
        return 2
    if os.geteuid() != 0:
        sys.stderr.write("tailrack-checks: only root can run the checks; next: sudo tailrack-checks\n")
        return 2
    os.umask(0o022)  # the output is for all users, whatever umask root has
    if "--forget-ports" in arguments:
        (node.persistent / "ports.json").unlink(missing_ok=True)
        return 0
    collect(node)
    items = findings(node)
    if "--json" in arguments:
        sys.stdout.write(json.dumps(verdict(node, socket.gethostname().split(".")[0], items)) + "\n")
    else:
        for item in items:
            remedy = f" (next: {item['remedy']})" if item["remedy"] else ""
            sys.stdout.write(f"{item['severity']:8}{item['check']}: {item['seen']}{remedy}\n")
        if not items:
            sys.stdout.write("nothing found\n")
    return 1 if any(item["severity"] == "error" for item in items) else 0
