"""tailrack-checks: all checks of this node at once, by hand. Root's, on the node itself.

Usage: tailrack-checks [--json | --forget-ports]

It prints a line for each finding (severity, check, what was seen, what helps), or with --json one object
{"node", "time", "boot_id", "findings": [{"severity", "check", "seen", "remedy"}]}. It exits with 0 where none is an
error, with 1 where one is, with 2 where it cannot look. --forget-ports: ports that are gone are no loss any more.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from components.validation.preflight import checks, kernel_log, lost_ports
from components.validation.preflight.findings import Finding, worst_first
from components.validation.preflight.gres import device_numbers
from components.validation.preflight.health import health_of

# The collector's own looks end after 70 s.
COLLECT_SECONDS = 80


@dataclass(frozen=True)
class Node:
    """This node's files, below `root`."""

    root: Path = Path("/")

    @property
    def boot_id(self) -> str:
        return _text(self.root / "proc/sys/kernel/random/boot_id").strip()

    @property
    def kept(self) -> Path:
        """What is kept over a restart; root's alone."""
        return self.root / "var/lib/tailrack/health"

    @property
    def of_this_boot(self) -> Path:
        return self.root / "run/tailrack-private"

    @property
    def shown(self) -> Path:
        """What everybody may read."""
        return self.root / "run/tailrack"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def load(path: Path) -> Any:
    """What a file holds as JSON; None where it is not there or no JSON."""
    try:
        return json.loads(_text(path))
    except (ValueError, RecursionError):
        return None


def save(path: Path, value: object, mode: int = 0o600) -> None:
    """Write a file whole or not at all: text as it is, all else as JSON."""
    path.parent.mkdir(mode=0o755 if mode & 0o004 else 0o700, parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(value if isinstance(value, str) else json.dumps(value))
        os.fchmod(descriptor, mode)
    Path(name).replace(path)


def _events(node: Node) -> str:
    """Lines of this boot's kernel log that are about GPUs, also those that its buffer has forgotten."""
    path = node.of_this_boot / "kernel-events.json"
    before = load(path)
    kept = [(int(number), str(text)) for number, text in before] if isinstance(before, list) else []
    found = kernel_log.joined(kept, kernel_log.read_kmsg(node.root))
    if found != kept:
        save(path, found)
    return "\n".join(text for _, text in found)


def _before(node: Node) -> lost_ports.Before:
    plain = load(node.kept / "ports.json")
    try:
        return lost_ports.Before(
            {str(port): float(rate) for port, rate in plain["rates"].items()},
            {str(port): [(float(at), int(count)) for at, count in each] for port, each in plain["downs"].items()},
        )
    except (TypeError, KeyError, ValueError, AttributeError):
        return lost_ports.Before()


def findings(node: Node) -> list[Finding]:
    """All findings about this node, worst first; and what has to be remembered for the next look is."""
    gpus = len(device_numbers(node.root))
    jobs = node.of_this_boot / "jobs"
    before = _before(node)
    machine = checks.Machine(
        gpus,
        health_of(node.shown / "health.json") if gpus else None,
        share=_text(node.root / "etc/tailrack/share-mounted").strip(),
        events=_events(node),
        before=before,
        jobs=len(list(jobs.iterdir())) if jobs.is_dir() else None,
        root=node.root,
    )
    found = worst_first(checks.run(machine, checks.NODE))
    after = lost_ports.after(before, machine.ports, time.time())
    if after != before:
        downs = {port: list(samples) for port, samples in after.downs.items()}
        save(node.kept / "ports.json", {"rates": dict(after.rates), "downs": downs})
    return found


def verdict(node: Node, name: str, found: list[Finding]) -> dict[str, Any]:
    """What is shown of a look."""
    return {"node": name, "time": int(time.time()), "boot_id": node.boot_id, "findings": found}


def main(arguments: list[str], node: Node | None = None) -> int:
    """See above."""
    node = node or Node()
    if not set(arguments) <= {"--json", "--forget-ports"} or len(arguments) > 1:
        sys.stderr.write("usage: tailrack-checks [--json | --forget-ports]\n")
        return 2
    if os.geteuid() != 0:
        sys.stderr.write("tailrack-checks: only root can look; next: sudo tailrack-checks\n")
        return 2
    os.umask(0o022)  # everybody reads what it finds, whatever root's login has
    if "--forget-ports" in arguments:
        (node.kept / "ports.json").unlink(missing_ok=True)
        return 0
    if device_numbers(node.root) and node.root == Path("/"):
        # What the GPUs say now, and not some minutes ago.
        try:
            subprocess.run(["systemctl", "start", "tailrack-health"], timeout=COLLECT_SECONDS, capture_output=True)
        except (OSError, subprocess.SubprocessError):
            sys.stderr.write("the collector of the GPUs' health does not end; its last look is what counts\n")
    found = findings(node)
    if "--json" in arguments:
        sys.stdout.write(json.dumps(verdict(node, socket.gethostname().split(".")[0], found)) + "\n")
    else:
        for each in found:
            remedy = f" (next: {each['remedy']})" if each["remedy"] else ""
            sys.stdout.write(f"{each['severity']:8}{each['check']}: {each['seen']}{remedy}\n")
        if not found:
            sys.stdout.write("nothing found\n")
    return 1 if any(each["severity"] == "error" for each in found) else 0
