"""tailrack-figures: write metrics that node exporter lacks into the folder that node exporter reads.

Usage: tailrack-figures FOLDER COLLECTOR ...     as root, once a minute, as a task

Each collector replaces one file atomically. A collector that fails writes a file without its metrics, because old
values would look like new ones, and reports the failure as a metric.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from components.roles.budget.spending import read_budget, spending
from components.roles.monitoring.exposition import Metric, exposition
from components.roles.monitoring.machine_figures import QUERY, gpu_figures, read_names, tailnet_figures
from components.roles.monitoring.measured_figures import TRAINING, measured_figures, training_figures
from components.roles.monitoring.slurm_figures import budget_figures, cost_figures, job_gpu_figures, slurm_figures
from components.roles.sll.snapshot import jobs_and_nodes
from components.roles.tailrack_command.book import read_book
from components.roles.tailrack_command.costs import costs
from components.roles.usage.record import read_limits
from components.validation.preflight.findings import plain

SETTINGS = Path("/etc/tailrack/monitoring.json")
REPORTS = Path("/var/lib/tailrack/validation")
# Address and name of each member, on every machine (components/roles/names).
NAMES = Path("/var/lib/tailrack/names")
BACKUP = Path("/var/lib/tailrack/backup-state")
# One folder per member and for the head node; only on the head node (components/roles/names).
MEMBERS = Path("/var/lib/tailrack/members")
SLURM_STATE = Path("/var/lib/slurm/slurmctld")
# The certificate of this machine's SSH host key (components/roles/ssh_trust).
CERTIFICATE = Path("/etc/ssh/ssh_host_ed25519_key-cert.pub")
DEVICES = Path("/dev")
LIMIT_SECONDS = 20
NOBODY = 65534
# Per collector. With more, Prometheus would reject this machine's whole answer (prometheus.py).
MOST_FIGURES = 6000


def main(argv: Sequence[str]) -> int:
    """Write a file for each collector. Return 0 even if collectors fail."""
    folder, *names = argv
    for name in names:
        write(Path(folder), name, COLLECTORS[name])
    return 0


def write(folder: Path, name: str, collect: Callable[[], Sequence[Metric]]) -> None:
    """Run a collector and replace its file."""
    text, start, success = "", time.monotonic(), True
    try:
        metrics = collect()
        if (count := sum(len(metric.samples) for metric in metrics)) > MOST_FIGURES:
            raise ValueError(f"{count} metrics, more than the limit of {MOST_FIGURES}")
        text = exposition(metrics)
    except Exception as error:  # noqa: BLE001  data of users and of a node's root must not stop other collectors
        sys.stderr.write(f"{name}: {plain(f'{type(error).__name__}: {error}')}\n")
        success = False
    labels = {"collector": name}
    seconds = time.monotonic() - start
    status = [
        Metric("tailrack_collector_success", "0 if a collector has failed; journalctl shows why.", [(labels, success)]),
        Metric("tailrack_collector_seconds", "How long the collector ran.", [(labels, seconds)]),
    ]
    fresh = folder / f".{name}.new"  # node exporter reads only *.prom
    fresh.write_text(text + exposition(status), encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(folder / f"{name}.prom")


def slurm() -> Sequence[Metric]:
    """Collect jobs, nodes and costs with one query. Only on the head node."""
    jobs, nodes, _ = jobs_and_nodes()
    settings = _settings()
    # Without the hours that jobs used: slurmdbd must not get a query every minute.
    book, now = read_book(), time.time()
    rows = costs(book, {node.name: node for node in nodes}, None, now)
    members, budget, limits = _members(), read_budget(), read_limits()
    return [
        *slurm_figures(jobs, [node for node in nodes if node.name in members]),
        *job_gpu_figures(jobs, limits.exempt if limits else ()),
        *cost_figures(rows, settings["head"], settings["idle_hours"]),
        *budget_figures(spending(budget, book, now) if budget else None),
    ]


def tailnet() -> Sequence[Metric]:
    """Collect the paths to other members."""
    return tailnet_figures(_output("tailscale", "status", "--json"), read_names(NAMES.read_text(encoding="utf-8")))


def gpus() -> Sequence[Metric]:
    """Collect the GPUs, as user nobody: nvidia-smi of root would create missing device files."""
    if not any(path.name[6:].isdecimal() for path in DEVICES.glob("nvidia[0-9]*")):
        return ()
    return gpu_figures(_output(*QUERY, user=NOBODY))


def certificate() -> Sequence[Metric]:
    """Collect the end of the SSH certificate, if the machine has one that ends."""
    if not CERTIFICATE.exists():
        return ()
    shown = _output("env", "LC_ALL=C", "TZ=UTC", "ssh-keygen", "-L", "-f", str(CERTIFICATE))
    # The first line of this form: a principal, which the authority chooses, comes later.
    valid = re.search(r"^ +Valid: (?:forever|after \S+|(?:from \S+ to|before) (\S+))$", shown, re.MULTILINE)
    if not valid:
        raise ValueError("ssh-keygen does not print when the certificate ends")
    end = datetime.fromisoformat(f"{valid[1]}+00:00").timestamp() if valid[1] else None
    text = "When the certificate of this machine's SSH host key ends."
    return [Metric("tailrack_certificate_end_timestamp_seconds", text, [] if end is None else [({}, end)])]


def _settings() -> Mapping[str, Any]:
    settings: Mapping[str, Any] = json.loads(SETTINGS.read_text(encoding="utf-8"))
    return settings


def head() -> Sequence[Metric]:
    """Collect the share, the disk of Slurm's state and the last backup. Only on the head node."""
    share = _room(
        "tailrack_share_bytes", "tailrack_share_available_bytes", "the share's file system", _settings()["share"]
    )
    state = _room(
        "tailrack_slurm_state_bytes",
        "tailrack_slurm_state_available_bytes",
        "the file system that Slurm's state is on",
        SLURM_STATE,
    )
    return [*share, *state, *_backup()]


def measured() -> Sequence[Metric]:
    """Collect the measurements. Only on the head node.

    A separate collector, because a user's process wrote the reports: bad ones must not affect other metrics.
    """
    settings, reports = _settings(), _reports()
    bandwidth = {scope: report for scope, report in reports.items() if scope != TRAINING}
    trained = training_figures(reports[TRAINING], settings.get("training_floor")) if TRAINING in reports else ()
    return [*measured_figures(settings, bandwidth, _members()), *trained]


def _members() -> frozenset[str]:
    """Return the cluster's members from files of its steps. Root of a node could invent names in slurmctld."""
    return frozenset(path.name for path in MEMBERS.iterdir())


def _room(size: str, free: str, file_system: str, path: str | Path) -> Sequence[Metric]:
    room = os.statvfs(path)
    return [
        Metric(size, f"Size of {file_system}.", [({}, room.f_blocks * room.f_frsize)]),
        Metric(free, f"Free bytes of {file_system}.", [({}, room.f_bavail * room.f_frsize)]),
    ]


def _backup() -> Sequence[Metric]:
    if not BACKUP.exists():
        return ()
    fields = dict(line.split("=", 1) for line in BACKUP.read_text(encoding="utf-8").splitlines() if "=" in line)
    done = fields.get("done", "")
    text = "Time of the last backup of the head node; 0 without one."
    return [Metric("tailrack_backup_timestamp_seconds", text, [({}, int(done) if done.isdecimal() else 0)])]


def _reports() -> Mapping[str, Mapping[str, Any]]:
    """Return each scope's last report, or the one before (`.last.json`) if nodes were busy in the last measurement."""
    reports: dict[str, Mapping[str, Any]] = {}
    for path in sorted(REPORTS.glob("*.json"), key=lambda path: path.name.endswith(".last.json")):
        scope = path.name.removesuffix(".json").removesuffix(".last")
        try:
            report = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            continue
        if isinstance(report, dict):
            reports.setdefault(scope, report)
    return reports


def _output(*command: str, user: int | None = None) -> str:
    groups: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LIMIT_SECONDS,
        check=False, **groups,
    )  # fmt: skip
    if done.returncode != 0:
        raise ValueError(f"{command[0]}: {' '.join((done.stderr or done.stdout).split())[:200]}")
    return done.stdout


COLLECTORS: Mapping[str, Callable[[], Sequence[Metric]]] = {
    "slurm": slurm,
    "tailnet": tailnet,
    "gpus": gpus,
    "certificate": certificate,
    "head": head,
    "measured": measured,
}
