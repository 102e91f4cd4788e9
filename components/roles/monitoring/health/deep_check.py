"""tailrack-deep-check: a task on the head node runs it as root to benchmark idle nodes and drain slow ones.

Usage: tailrack-deep-check [NODE ...]            check all idle nodes that are due; or these, due or not
       tailrack-deep-check --forget NODE ...     compare these with their next figure, as after a GPU was replaced

It skips nodes with jobs, nodes that Slurm keeps for a job, and nodes that somebody else drained. The cluster's first
user submits the benchmark as an exclusive job (components/validation/gpu_speed), never root. A node that the check
drained gets no jobs, so the check resumes it under a reservation for that user, measures it, and drains it again if it
is still slow.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from components.node.failure import Failure
from components.node.locks import Lock
from components.node.pack import ROOT
from components.node.waiting import within
from components.roles.monitoring.health.gpu_records import GpuRecords
from components.roles.slurm.slurm.folders import POD
from components.slurm_commands import slurm
from components.slurm_commands.nodes import Node
from components.slurm_commands.slurm import SlurmError
from components.validation.became_slow import JOINED, Measured, Record, against, better, measured, reason, remembered
from components.validation.fabric_facts import read_fabric_facts
from components.validation.groups import count
from components.validation.model import Measurement
from components.validation.preflight.findings import read_lines
from components.validation.results import Conditions, judge_group, judge_scope
from components.validation.slurm_jobs import run_as_submitter
from components.validation.this_node import load, save, text_of
from components.validation.untrusted import read_or_default

Settings = Mapping[str, Any]
# Added to the time limits of a node's jobs.
SPARE_SECONDS = 120
REPORTS = Path("/var/lib/tailrack/validation")
# The address of each node as it joined (components/roles/network/names/host.py).
MEMBERS = Path("/var/lib/tailrack/members")
# Settings that must be the same for two figures to be comparable.
_SAME = ("backend", "collective", "gate_bytes")


def measurement_settings(settings: Settings, node: Node) -> Mapping[str, Any]:
    """Return the settings of the measurement that fits a node's hardware."""
    plan = settings["plan"]
    chosen: Mapping[str, Any] = plan["nccl"] if _gpus(settings, node) > 1 else plan["cpu"]
    return chosen


def limit_seconds(settings: Settings) -> int:
    """Return how long all jobs of a node may take together."""
    return int(settings["plan"]["measurement_seconds"]) + SPARE_SECONDS


def _gpus(settings: Settings, node: Node) -> int:
    """Return how many of a node's GPUs are measured; 0 for mixed kinds, which one figure cannot describe."""
    return 0 if "," in node.gpus else count(node.gpus, settings["plan"]["nccl"]["most_gpus"])


def program_input(settings: Settings, node: Node, *, each_gpu: bool) -> dict[str, Any]:
    """Return the input of the user's program (components/validation/measurement_run.py).

    each_gpu   whether to measure each GPU too, and to run dcgmi (components/validation/gpu_speed/node.py)
    """
    each_gpu = each_gpu and bool(node.gpus)
    plan = dict(settings["plan"])
    level = settings["dcgm_level"] if each_gpu else 0
    alone = {"address": "", "site": "", "gpus": node.gpus}
    # The job needs 30 s for everything else.
    about = {"fabric": {}, "dcgm_level": level, "dcgm_seconds": settings["minutes"] * 60 - 30}
    plan |= {
        "scope": f"deep-check-{node.name}",
        "sites": {node.name: ""},
        "about": {**about, "nodes": {node.name: alone}},
    }
    plan |= {"gpus": {node.name: node.gpus}, "preflight": "gpu-check" if each_gpu else ""}
    if _gpus(settings, node) < 2:
        plan |= {"nccl": None, "gpus": {node.name: node.gpus if _gpus(settings, node) else ""}}
    return {"plan": plan, "nodes": [node.name], "absent": {}}


def measure_as_user(settings: Settings, node: Node, reservation: str, each_gpu: bool) -> Mapping[str, Any] | None:
    """Measure a node and return the report of the user's program; None if it printed no valid report."""
    ended = run_as_submitter(
        settings["user"],
        # `up` measures with the same command.
        *("/usr/bin/python3", "-I", "-S", str(ROOT), "measure"),
        task=program_input(settings, node, each_gpu=each_gpu),
        limit=limit_seconds(settings),
        **({"SBATCH_RESERVATION": reservation} if reservation else {}),
    )
    try:
        report = json.loads(ended.output)
    except (ValueError, RecursionError):
        return None
    return report if isinstance(report, dict) and ended.ok else None


def read_report(settings: Settings, node: Node, report: Mapping[str, Any] | None) -> Measured:
    """Judge a report. A user's process printed it, so it may contain anything."""
    if report is None:
        return Measured(None, doubt="the measurement ended early, see the messages above")
    gpus, parameters = _gpus(settings, node), dict(measurement_settings(settings, node))
    for key in ("socket_max_bytes", "most_gpus", "mpi"):
        parameters.pop(key, None)
    measurement = Measurement(**{"ranks": max(2, gpus), "nodes": 1, **parameters})
    # The config's floor for single nodes applies to GPUs only.
    floor = settings["floor"] if gpus > 1 else None
    result, _ = judge_scope(measurement, report, Conditions(floor, floor, "", spans=False), read_lines)
    return measured(result, result["preflight"].get(node.name, ()), on_gpus=gpus > 1)


def address_of(name: str, members: Path = MEMBERS) -> str:
    """Return a node's tailnet address, which identifies the machine; empty if it is unknown."""
    return text_of(members / name / "address")


def with_figure(record: Record, node: Node, reports: Path = REPORTS) -> Record:
    """Return the record with this machine's oldest comparable figure as its reference, if there is one."""
    if record.forgotten:
        return record
    figures = sorted(_figures(record, node, reports))
    return replace(record, reference=figures[0][1], since=JOINED) if figures else record


def _figures(record: Record, node: Node, reports: Path) -> Iterator[tuple[float, float]]:
    """Yield the time and the GB/s of each figure."""
    for path in sorted(reports.glob("*.json")):
        report = load(path)
        if not isinstance(report, Mapping) or report.get("members", {}).get(node.name) != record.of.get("address"):
            continue
        for entry in report.get("alone", ()):
            figure = _figure(entry, report, node, record)
            if figure is not None:
                yield float(report.get("measured_at") or 0), figure


def _figure(entry: Mapping[str, Any], report: Mapping[str, Any], node: Node, record: Record) -> float | None:
    """Return the GB/s of one entry, or None. A user's process wrote it, so it may contain anything."""
    try:
        settings = record.of["asked"]
        if entry["gpus"] != {node.name: node.gpus} or any(entry["asked"][key] != settings[key] for key in _SAME):
            return None
        facts = read_fabric_facts(str(report.get("there", "")))
        result = judge_group(entry, facts, None, Conditions(None, None, "", spans=False))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
        return None
    figure = measured(result, (), on_gpus=True)
    return None if figure.broken else figure.gb_per_s


SETTINGS = Path("/etc/tailrack/deep-check.json")
RECORDS = Path("/var/lib/tailrack/deep-check")
RESERVATION = "tailrack-deep-check-"
# Time until the next check after a check without a figure.
RETRY_SECONDS = 3600
# Flags that say nothing about a node's activity.
_KIND_FLAGS = frozenset({"CLOUD", "DYNAMIC_NORM", "DYNAMIC_FUTURE"})
# Arguments: the settings, a node, a reservation or nothing, and whether to measure each GPU and run dcgmi too.
Measure = Callable[[Mapping[str, Any], Node, str, bool], Mapping[str, Any] | None]


class DeepCheck:
    """The checks of one run. For `settings` see components/measurement_jobs/job_plans.py."""

    def __init__(self, settings: Mapping[str, Any], measure: Measure | None = None, records: Path = RECORDS) -> None:
        self.settings, self.records = settings, records
        self.measure = measure or measure_as_user
        self.gpus = GpuRecords(records)

    def record(self, node: Node) -> Record:
        """Return a node's record, with its figure from when it joined as reference if the record has none."""
        identity = {
            "address": address_of(node.name),
            "gpus": node.gpus,
            "asked": measurement_settings(self.settings, node),
        }
        record = read_or_default(Record, load(self.records / f"{node.name}.json"), exact=True).about(identity)
        if record.reference is None:
            record = with_figure(record, node)
        return record

    def save(self, node: Node, record: Record) -> None:
        """Write a node's record, readable by root only."""
        save(self.records / f"{node.name}.json", asdict(record))

    def settle(self, node: Node) -> Record:
        """Return a node's record, updated for a check that was cut off or a drain that a person changed."""
        record = saved = self.record(node)
        if record.trying:
            self._remove_reservation(node)
            node = slurm.nodes(node.name)[0]
            record = replace(record, trying=False)
            if record.own and not node.out:
                record = self._drain(node, record, record.own[0])
        elif record.own and not is_own_drain(node, record):
            # If a person resumed the node, its figure is accepted; if a person drained it again, that drain is theirs.
            record = replace(record, own=None) if node.out else record.taken_back()
        if record != saved or not (self.records / f"{node.name}.json").exists():
            self.save(node, record)
        return record

    def check(self, name: str) -> None:
        """Check a node if that is possible now."""
        (node,) = slurm.nodes(name)
        record = self.settle(node)
        (node,) = slurm.nodes(name)
        if is_idle(node):
            measured = self._measure_twice(node, "", record)
            self._judge(node, record, measured)
        elif is_own(node, record):
            self._recheck(node, record)
        else:
            log(f"{name}: not checked, it is {node.state}{f' ({node.reason})' if node.reason else ''}")

    def _measure_twice(self, node: Node, reservation: str, record: Record) -> Measured:
        """Return the result of a check, which is repeated if the first result is bad."""
        measured = self._measure(node, reservation, each_gpu=True)
        if not against(measured, record) or measured.gb_per_s is None:
            return measured
        log(f"{node.name}: {against(measured, record)}; measuring again")
        return better(measured, self._measure(node, reservation, each_gpu=False))

    def _measure(self, node: Node, reservation: str, *, each_gpu: bool) -> Measured:
        report = self.measure(self.settings, node, reservation, each_gpu)
        measured = read_report(self.settings, node, report)
        items = self.gpus.judge(node.name, address_of(node.name), report) if each_gpu else []
        if each_gpu and "gpu_speed" in (report or {}) and (figures := self.gpus.figures(node.name)):
            log(f"{node.name}: each GPU has at least {figures}")
        for item in items:
            log(f"{node.name}: {item['severity']}: {item['seen']}")
        errors = tuple(f"{item['check']}: {item['seen']}" for item in items if item["severity"] == "error")
        return replace(measured, broken=(*measured.broken, *errors))

    def _judge(self, node: Node, record: Record, measured: Measured) -> None:
        problem = against(measured, record)
        updated = self._updated(measured, record)
        # A drain that somebody set during the check stays.
        if problem and not slurm.nodes(node.name)[0].out:
            updated = self._drain(node, updated, reason(problem))
        self._log_result(node, record, measured, problem)
        self.save(node, updated)

    def _recheck(self, node: Node, record: Record) -> None:
        """Check a node that this program drained, and resume it if it is fast again."""
        own_reason = record.own[0] if record.own else ""
        self.save(node, replace(record, trying=True))
        updated = record
        try:
            self._reserve(node)
            slurm.scontrol("update", f"nodename={node.name}", "state=undrain")
            measured = self._measure_twice(node, RESERVATION + node.name, record)
            problem = against(measured, record)
            updated = self._updated(measured, record)
            self._log_result(node, record, measured, problem)
            if not problem and measured.gb_per_s is not None:
                updated = replace(updated, own=None)
                log(f"{node.name}: resumed")
            else:
                own_reason = reason(problem) if problem else own_reason
        finally:
            if updated.own and not slurm.nodes(node.name)[0].out:
                updated = self._drain(node, updated, own_reason)
            self._remove_reservation(node)
            self.save(node, replace(updated, trying=False))

    def _updated(self, measured: Measured, record: Record) -> Record:
        interval = self.settings["every_hours"] * 3600
        seconds = min(interval, RETRY_SECONDS) if measured.gb_per_s is None else interval
        return remembered(measured, record, time.time() + seconds)

    def _log_result(self, node: Node, record: Record, measured: Measured, problem: str) -> None:
        figure = "no figure" if measured.gb_per_s is None else f"{measured.gb_per_s:.4g} GB/s"
        reference = "" if record.reference is None else f", {record.reference:.4g} {record.since}"
        doubt = f": UNJUDGED: {measured.doubt}" if measured.gb_per_s is None else ""
        log(f"{node.name}: {figure}{reference}{doubt}{f'; drained: {problem}' if problem else ''}")

    def _drain(self, node: Node, record: Record, text: str) -> Record:
        slurm.scontrol("update", f"nodename={node.name}", "state=drain", f"reason={text}")
        drained = slurm.nodes(node.name)[0]
        # If somebody else set another reason first, the drain is theirs and only a person resumes the node.
        return replace(record, own=(drained.reason, drained.since) if drained.reason == text else None)

    def _reserve(self, node: Node) -> None:
        self._remove_reservation(node)
        # Slurm ends it after the longest time that a check can take, even if this program was killed.
        minutes = 2 * limit_seconds(self.settings) // 60 + 1
        slurm.scontrol(
            "create", "reservation", f"reservationname={RESERVATION}{node.name}", f"users={self.settings['user']}",
            f"nodes={node.name}", "starttime=now", f"duration={minutes}", "flags=ignore_jobs",
        )  # fmt: skip

    def _remove_reservation(self, node: Node) -> None:
        try:
            slurm.scontrol("delete", f"reservationname={RESERVATION}{node.name}")
        except SlurmError as error:
            # It does not exist; or a job still uses it, and Slurm removes it when its time is over.
            if "not exist" not in str(error) and "nvalid" not in str(error):
                log(str(error))


def is_idle(node: Node) -> bool:
    """Return whether a node takes jobs, has none, and is not planned, reserved, completing or about to reboot."""
    return node.flags - _KIND_FLAGS == {"IDLE"}


def is_own_drain(node: Node, record: Record) -> bool:
    """Return whether this program drained the node."""
    return "DRAIN" in node.flags and record.own == (node.reason, node.since)


def is_own(node: Node, record: Record) -> bool:
    """Return whether this program drained the node, and it answers and has no jobs left."""
    return is_own_drain(node, record) and node.flags - _KIND_FLAGS == {"IDLE", "DRAIN"}


def log(message: str) -> None:
    """Print a line, which systemd adds to the journal."""
    sys.stdout.write(f"{message}\n")
    sys.stdout.flush()


def run(checks: DeepCheck, names: Sequence[str]) -> int:
    """Check these nodes, or all that are due. Return 1 if an error kept a node from being checked."""
    chosen = list(names)
    checks.gpus.publish()
    if not names:
        # A pod has no share, where the measurement's files are.
        records = {node.name: checks.settle(node) for node in slurm.nodes() if POD not in node.features}
        now, longest = time.time(), checks.settings["every_hours"] * 3600
        waiting = {name for name, record in records.items() if within(longest + 1, now, record.due)}
        due = [node for node in slurm.nodes() if node.name in records.keys() - waiting]
        ready = [node.name for node in due if is_idle(node) or is_own(node, records[node.name])]
        chosen = sorted(ready, key=lambda name: records[name].due)
    status, at_once = 0, checks.settings["at_once"]
    for batch in (chosen[start : start + at_once] for start in range(0, len(chosen), at_once)):
        # A measurement of `up` and this check would each find the other's nodes busy.
        try:
            lock = Lock("measure", seconds=0)
        except Failure:
            log("another measurement is running; the remaining nodes are checked next time")
            return status
        with lock, ThreadPoolExecutor(len(batch)) as pool:
            for name, done in [(name, pool.submit(checks.check, name)) for name in batch]:
                if error := done.exception():
                    log(f"{name}: {error}")
                    status = 1
        # Let a measurement that waits for the lock take it.
        time.sleep(1)
    return status


def main(argv: Sequence[str]) -> int:
    """Run the command line in the module's docstring."""
    parser = argparse.ArgumentParser(
        prog="tailrack-deep-check",
        description="Benchmark idle nodes one at a time, and drain a node that has become slow since it joined.",
    )
    parser.add_argument("--forget", action="store_true", help="use the next figure of these nodes as their reference")
    parser.add_argument("nodes", nargs="*", metavar="NODE", help="check these, due or not (default: all that are due)")
    arguments = parser.parse_args(list(argv))
    if os.geteuid() != 0:
        sys.stderr.write("tailrack-deep-check: must run as root; next: sudo tailrack-deep-check\n")
        return 2
    # SystemExit runs `finally` blocks, so nodes are put in order when systemd stops this program; the measuring program
    # cancels its own jobs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    RECORDS.mkdir(mode=0o700, parents=True, exist_ok=True)
    checks = DeepCheck(json.loads(SETTINGS.read_text(encoding="utf-8")))
    try:
        lock = Lock("deep-check", seconds=0)
    except Failure:
        sys.stderr.write("tailrack-deep-check: it is already running; next: wait until that run ends\n")
        return 1
    try:
        with lock:
            names = [node.name for node in slurm.nodes(*arguments.nodes)] if arguments.nodes else []
            if not arguments.forget:
                return run(checks, names)
            for name in names:
                forget(checks, name)
            return 0
    except SlurmError as error:
        sys.stderr.write(f"tailrack-deep-check: {error}\n")
        return 1


def forget(checks: DeepCheck, name: str) -> None:
    """Make a node's next figure its reference. A drain that this program set stays its own."""
    (node,) = slurm.nodes(name)
    record = checks.settle(node)
    checks.save(node, Record(of=record.of, own=record.own, last=record.last, forgotten=True))
    checks.gpus.forget(name)
    log(f"{name}: the next figure becomes its reference")
