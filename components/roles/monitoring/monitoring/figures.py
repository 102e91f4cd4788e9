"""tailrack-figures: write metrics that node exporter lacks into the folder that node exporter reads.

Usage: tailrack-figures FOLDER COLLECTOR ...     as root, once a minute, as a task

Each collector replaces one file atomically. A collector that fails writes a file without its metrics, because old
values would look like new ones, and reports the failure as a metric.
"""

import csv
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Container, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, get_args

from components.roles.commands.sll.snapshot import jobs_and_nodes
from components.roles.commands.tailrack.costs import costs
from components.roles.monitoring.budget.spending import read_book, read_budget, spending
from components.roles.monitoring.monitoring.slurm_figures import (
    Metric,
    Sample,
    budget_figures,
    cost_figures,
    exposition,
    job_gpu_figures,
    slurm_figures,
)
from components.roles.monitoring.usage.job_gpu_use import read_limits
from components.validation.model import Measurement
from components.validation.preflight.findings import plain
from components.validation.results import Conditions, judge_scope
from components.validation.training_verdict import judge_training
from components.validation.verdict import Result, Verdict

VERDICTS: tuple[str, ...] = get_args(Verdict)
_BUSBW = ("tailrack_busbw_gb_per_s", "Bus bandwidth of the last measurement, 1e9 bytes a second.")
_FLOOR = ("tailrack_busbw_floor_gb_per_s", "Floor of the bus bandwidth.")
_MOMENT = ("tailrack_measured_timestamp_seconds", "Time of the last measurement.")
_VERDICT = ("tailrack_measurement_verdict", "1 for the verdict of the last measurement.")
TRAINING = "training_benchmark"  # the name of its files (components/measurement_jobs/job_plans.py)


def measured_figures(
    settings: Mapping[str, Any], reports: Mapping[str, Mapping[str, Any]], members: Container[str]
) -> list[Metric]:
    """Return the metrics of all scopes and of single nodes.

    settings   `cpu`, the settings of a measurement of CPUs; `ranks_per_node`; `floors`, GB/s by scope; `cross_site`
               and `node`, the names of these scopes
    reports    by scope
    members    nodes of the cluster; metrics of other nodes in a report are left out
    """
    busbw: list[Sample] = []
    floor: list[Sample] = []
    moment: list[Sample] = []
    verdict: list[Sample] = []
    for scope, report in sorted(reports.items()):
        result_of_scope, results_of_nodes = _judge(settings, scope, report)
        single_nodes = [
            ({"scope": settings["node"], "node": node}, result)
            for node, result in sorted(results_of_nodes.items())
            if node in members
        ]
        for labels, result in [({"scope": scope}, result_of_scope), *single_nodes]:
            detailed = {**labels, "collective": result["collective"], "bytes": str(result["gate_bytes"])}
            if result["busbw_gb_per_s"] is not None:
                busbw.append((detailed, result["busbw_gb_per_s"]))
            if result["floor_gb_per_s"] is not None:
                floor.append((detailed, result["floor_gb_per_s"]))
            verdict += [({**labels, "verdict": name}, int(name == result["verdict"])) for name in VERDICTS]
            if isinstance(report.get("measured_at"), int | float):
                moment.append((labels, report["measured_at"]))
    return [Metric(*_BUSBW, busbw), Metric(*_FLOOR, floor), Metric(*_MOMENT, moment), Metric(*_VERDICT, verdict)]


def _judge(settings: Mapping[str, Any], scope: str, report: Mapping[str, Any]) -> tuple[Result, Mapping[str, Result]]:
    nodes = report.get("nodes")
    left_out = report.get("left_out")
    count = sum(len(names) for names in (nodes, left_out) if isinstance(names, list)) or 1
    measurement = Measurement(
        **settings["cpu"],
        backend="tcp-cpu" if scope == settings["cross_site"] else "mpi-cpu",
        nodes=count,
        ranks=max(2, count * settings["ranks_per_node"]),
    )
    floors = settings["floors"]
    conditions = Conditions(floors.get(scope), floors.get(settings["node"]), "", spans=False)
    # Without the nodes' network facts, the verdict ignores which network carried the data.
    return judge_scope(measurement, {**report, "there": ""}, conditions, lambda _: {})


def training_figures(report: Mapping[str, Any], floor: float | None) -> Sequence[Metric]:
    """Return images per second in total and per rank, the jitter, the verdict and the time.

    floor   the config's minimum of images per second and rank; None without one
    """
    result = judge_training(report, floor)
    labels = {"device": result["device"] or "unknown"}
    figures = (
        ("tailrack_training_images_per_second", "Training benchmark, all ranks.", result["images_per_second"]),
        (
            "tailrack_training_images_per_second_per_rank",
            "Training benchmark, per GPU; on CPUs per node.",
            result["images_per_second_per_rank"],
        ),
        ("tailrack_training_jitter_ratio", "How much longer a slow step takes than the median step.", result["jitter"]),
        (
            "tailrack_training_floor_images_per_second_per_rank",
            "Floor of the training benchmark.",
            result["floor_images_per_second"],
        ),
    )
    metrics = [Metric(name, text, [(labels, value)]) for name, text, value in figures if value is not None]
    verdicts = [({"verdict": name}, int(name == result["verdict"])) for name in get_args(Verdict)]
    metrics.append(Metric("tailrack_training_verdict", "1 for the verdict of the last training benchmark.", verdicts))
    if isinstance(time := report.get("measured_at"), int | float):
        text = "Time of the last training benchmark."
        metrics.append(Metric("tailrack_training_measured_timestamp_seconds", text, [({}, time)]))
    return metrics


_MIB = 2**20
# Field of nvidia-smi, name, help, and the factor that converts its unit.
_FIGURES = (
    ("utilization.gpu", "tailrack_gpu_utilization_ratio", "Share of the last second in which a kernel ran.", 0.01),
    ("memory.used", "tailrack_gpu_memory_used_bytes", "Memory in use.", _MIB),
    ("memory.total", "tailrack_gpu_memory_bytes", "Memory.", _MIB),
    ("temperature.gpu", "tailrack_gpu_temperature_celsius", "Temperature of the chip.", 1),
    ("power.draw", "tailrack_gpu_power_watts", "Power.", 1),
    (
        "ecc.errors.uncorrected.volatile.total",
        "tailrack_gpu_uncorrected_errors",
        "Memory errors since the driver was loaded that ECC could not correct.",
        1,
    ),
)
QUERY: Sequence[str] = (
    "nvidia-smi",
    f"--query-gpu=index,name,{','.join(field for field, *_ in _FIGURES)}",
    "--format=csv,noheader,nounits",
)


def gpu_figures(output: str) -> list[Metric]:
    """Return the metrics of each GPU. Missing values (`[N/A]`) and lines that are not rows are left out.

    Raise ValueError if no line is a row.
    """
    lines = [[cell.strip() for cell in row] for row in csv.reader(output.splitlines()) if row]
    rows = [row for row in lines if len(row) == len(_FIGURES) + 2 and row[0].isdecimal()]
    if lines and not rows:
        raise ValueError("nvidia-smi does not print the requested fields")
    count = Metric("tailrack_gpus", "GPUs that nvidia-smi shows.", [({}, len(rows))])
    return [
        count,
        *(
            Metric(name, text, _samples(rows, column, factor))
            for column, (_, name, text, factor) in enumerate(_FIGURES, start=2)
        ),
    ]


def _samples(rows: Sequence[Sequence[str]], column: int, factor: float) -> list[Sample]:
    samples: list[Sample] = []
    for row in rows:
        try:
            samples.append(({"gpu": row[0], "kind": row[1]}, float(row[column]) * factor))
        except ValueError:
            continue
    return samples


def read_names(text: str) -> dict[str, str]:
    """Return member names by address, from lines `address name`."""
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def tailnet_figures(status: str, names: Mapping[str, str]) -> list[Metric]:
    """Return the metrics of each member that this machine recently exchanged data with.

    names   of members by address; the name that a machine gives itself in the tailnet is ignored

    Raise ValueError for output in another format.
    """
    direct: list[Sample] = []
    received: list[Sample] = []
    sent: list[Sample] = []
    try:
        for peer in (json.loads(status).get("Peer") or {}).values():
            # Skip a peer without data.
            if not peer:
                continue
            name = next((names[address] for address in peer.get("TailscaleIPs") or [] if address in names), "")
            if not name:
                continue
            labels = {"peer": name}
            received.append((labels, int(peer.get("RxBytes") or 0)))
            sent.append((labels, int(peer.get("TxBytes") or 0)))
            # Without traffic there is no path, direct or relayed.
            if peer.get("Active"):
                direct.append((labels, int(bool(peer.get("CurAddr")))))
    except (AttributeError, TypeError) as error:
        raise ValueError("tailscale does not print its status as expected") from error
    return [
        Metric("tailrack_tailnet_direct", "1 if data to a peer goes directly, 0 if by a relay.", direct),
        Metric("tailrack_tailnet_received_bytes_total", "Bytes from a peer over the tailnet.", received, "counter"),
        Metric("tailrack_tailnet_sent_bytes_total", "Bytes to a peer over the tailnet.", sent, "counter"),
    ]


SETTINGS = Path("/etc/tailrack/monitoring.json")
REPORTS = Path("/var/lib/tailrack/validation")
# Address and name of each member, on every machine (components/roles/network/names).
NAMES = Path("/var/lib/tailrack/names")
BACKUP = Path("/var/lib/tailrack/backup-state")
# One folder per member and for the head node; only on the head node (components/roles/network/names).
MEMBERS = Path("/var/lib/tailrack/members")
SLURM_STATE = Path("/var/lib/slurm/slurmctld")
# The certificate of this machine's SSH host key (components/roles/access/ssh_trust).
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
