"""One scope measured, on the head node, as the user: what there is on the nodes, the jobs, and the search that follows.

Reads a plan (JSON, see measurement/plan.py) and the nodes that take part, and prints what JobReport.from_json
reads of the scope, with what results.judge_scope looks for besides. Needs Python 3.10 and nothing else.
"""

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from components.validation import nccl_log
from components.validation.expected import SOCKETS, expect
from components.validation.fabric_facts import FabricFacts, read_fabric_facts
from components.validation.figures import REDUCED, read_figures
from components.validation.groups import Group, across, alone, count, grouped
from components.validation.model import JobReport, Measurement
from components.validation.nccl_tests import parse
from components.validation.results import Conditions, asked_json, judge_group, judge_scope, to_be_searched
from components.validation.rounds import LEAST_NODES, Groups, suspects
from components.validation.slurm_jobs import Limits, Order, Refused, kept, run_jobs, say
from components.validation.verdict import Result

LOG_LIMIT = 200_000  # of NCCL's log, characters
REFUSED = 3  # exit status: Slurm did not take a job


class MeasurementRun:
    """The measurement of a scope; `measure` returns its report."""

    def __init__(self, plan: Mapping[str, Any], nodes: Sequence[str], absent: Mapping[str, str], folder: Path) -> None:
        self.plan, self.nodes, self.absent, self.folder = plan, tuple(nodes), dict(absent), folder
        self.limits = Limits(plan["start_seconds"], plan["run_seconds"])
        self.deadline = time.monotonic() + plan["measurement_seconds"]
        self.how = Conditions(
            plan["floor"], plan["node_floor"], plan["expected_interface"], plan["spans"], rdma=plan["rdma"]
        )
        self.gpus = {node: plan["gpus"].get(node, "") for node in self.nodes}

    def measure(self) -> dict[str, Any]:
        """Run all jobs. Raises Refused where Slurm does not take the first of them."""
        groups, left = self._groups()
        prepared = self._prepare(groups)
        told = "".join(report["output"] for report in prepared)
        failed = [report for report in prepared if report["state"] != "COMPLETED" or report["exit_code"]]
        if groups and failed:
            report = {**failed[0], "output": told, "gpus": {node: self.gpus[node] for node in _nodes_of(groups)}}
        elif groups:
            report = self._on_gpus(groups, read_fabric_facts(told))
            self.absent |= left
        else:
            report = self._on_cpus()
        return {**report, "there": _lines(told, "there"), "preflight": _lines(told, "preflight"), "absent": self.absent}

    def _groups(self) -> tuple[tuple[Group, ...], dict[str, str]]:
        asked = self.plan["nccl"]
        if asked is None:
            return (), {}
        if self.plan["spans"]:
            return across(self.gpus, self.plan["sites"], asked["most_gpus"], asked["mpi"])
        return grouped(self.gpus, asked["most_gpus"], asked["mpi"])

    # What there is

    def _prepare(self, groups: Sequence[Group]) -> list[dict[str, Any]]:
        """A job over all nodes before the first collective: the preflight, what there is, and the program itself.

        One for each kind of GPUs, all at once: a job gets no more of them than its poorest node has.
        """
        if not groups and not self.plan["preflight"]:
            return []
        files = dict(self.plan["prepare_files"])
        if self.plan["preflight"]:
            files["preflight.py"] = self.plan["preflight"]
        alike: dict[str, list[str]] = {}
        for node in _nodes_of(groups) or self.nodes:
            alike.setdefault(self.gpus[node], []).append(node)
        return self._run(
            [
                Order(
                    self.folder / _folder_name("prepare", gpus),
                    tuple(nodes),
                    # The nodes of a job look at the ways between them: others are not there then.
                    {**files, "about.json": json.dumps(self._about(nodes))},
                    [f"--switches={self._sites_of(nodes)}", *([f"--gpus-per-node={count(gpus)}"] if gpus else [])],
                )
                for gpus, nodes in alike.items()
            ]
        )

    def _about(self, nodes: Sequence[str]) -> dict[str, Any]:
        about = self.plan["about"]
        return {**about, "nodes": {name: about["nodes"][name] for name in nodes}}

    def _sites_of(self, nodes: Sequence[str]) -> int:
        return len({self.plan["sites"][node] for node in nodes})

    # On CPUs

    def _on_cpus(self) -> dict[str, Any]:
        asked = Measurement(**self.plan["cpu"])
        asked = replace(asked, nodes=len(self.nodes), ranks=asked.ranks // asked.nodes * len(self.nodes))
        order = self._cpu_order(self.folder, self.nodes, self.plan["cpu_job"])
        report = self._run([order])[0]
        del report["files"]

        def one_round(number: int, groups: Groups) -> dict[tuple[str, ...], float | None] | None:
            job = self.plan["gate_job"]
            orders = {group: self._cpu_order(self._place(number, group), group, job) for group in groups}
            gate = replace(asked, min_bytes=asked.gate_bytes, max_bytes=asked.gate_bytes)
            return self._round(gate, orders)

        result, _ = judge_scope(asked, report, self.how, lambda _: {})
        if self._worth_a_search(self.nodes) and to_be_searched(result):
            report["suspects"] = suspects(self.nodes, result["floor_gb_per_s"], one_round, None)
        return report

    def _cpu_order(self, folder: Path, nodes: Sequence[str], job: str) -> Order:
        tasks = len(nodes) * self.plan["ranks_per_node"]
        return Order(folder, tuple(nodes), {**self.plan["cpu_files"], "job.sh": job}, [f"--ntasks={tasks}"])

    # On GPUs

    def _on_gpus(self, groups: Sequence[Group], there: Mapping[str, FabricFacts]) -> dict[str, Any]:
        own = self._alone(groups, there)
        entries: list[dict[str, Any]] = []
        named: list[dict[str, Any]] = []
        for group in groups:
            if len(group.nodes) == 1:
                entries += [entry for entry in own if tuple(entry["gpus"]) == group.nodes]
                continue
            asked = self._asked(group, there)
            folder = self.folder / _folder_name(f"gpus-mpi{group.mpi}" if group.mpi else "gpus", group.gpus)
            (entry,) = self._steady([(group, asked, folder)], there, self.how.floor)
            entries.append(entry)
            result = judge_group(entry, there, self.how.floor, self.how)
            if self._worth_a_search(group.nodes) and to_be_searched(result):
                named += self._search(group, asked, result)
        return {**entries[0], "others": entries[1:], "alone": own, "suspects": named}

    def _alone(self, groups: Sequence[Group], there: Mapping[str, FabricFacts]) -> list[dict[str, Any]]:
        """Each node by itself, all at once: they have nothing in common."""
        if self.plan["spans"]:
            return []
        ones = alone(self.gpus, _nodes_of(groups), self.plan["nccl"]["most_gpus"])
        wanted = [(group, self._asked(group, there), self.folder / f"node-{group.nodes[0]}") for group in ones]
        return self._steady(wanted, there, self.how.node_floor)

    def _steady(
        self, wanted: Sequence[tuple[Group, Measurement, Path]], there: Mapping[str, FabricFacts], floor: float | None
    ) -> list[dict[str, Any]]:
        """Groups measured side by side; once more, where the runs of one lie too far apart."""
        entries = self._gpu_runs(wanted)
        judged = [judge_group(entry, there, floor, self.how) for entry in entries]
        again = [at for at, result in enumerate(judged) if result["verdict"] == "UNSTABLE"]
        if not again or self.deadline - time.monotonic() < self.limits.start:
            return entries
        say(f"measured once more, as runs differ: {', '.join(name for at in again for name in wanted[at][0].nodes)}")
        places = [(group, asked, folder.with_name(f"{folder.name}-again")) for group, asked, folder in wanted]
        try:
            second = self._gpu_runs([places[at] for at in again])
        except Refused as refused:
            say(str(refused))
            return entries
        for at, entry in zip(again, second, strict=True):
            spread = judged[at]["spread"]
            entries[at] = {**entry, "first_runs": spread["runs"] if spread else []}
        return entries

    def _asked(self, group: Group, there: Mapping[str, FabricFacts]) -> Measurement:
        """What is asked of a group. Where sockets carry the data, the largest sizes would take minutes each."""
        told = dict(self.plan["nccl"])
        del told["most_gpus"], told["mpi"]
        socket_bytes = told.pop("socket_max_bytes")
        asked = Measurement(**told, ranks=group.ranks, nodes=len(group.nodes))
        expected = expect(group.nodes, there, self.how.interface, spans=self.how.spans, rdma=self.how.rdma)
        slow = expected.transport == SOCKETS
        sizes = [size for size in asked.sizes() if size <= socket_bytes]
        if not slow or asked.gate_bytes <= socket_bytes or not sizes:
            return asked
        return replace(asked, max_bytes=sizes[-1], gate_bytes=sizes[-1])

    def _gpu_runs(self, wanted: Sequence[tuple[Group, Measurement, Path]]) -> list[dict[str, Any]]:
        reports = self._run([self._gpu_order(*each) for each in wanted]) if wanted else []
        return [self._entry(group, asked, report) for (group, asked, _), report in zip(wanted, reports, strict=True)]

    def _entry(self, group: Group, asked: Measurement, report: Mapping[str, Any]) -> dict[str, Any]:
        gpus = {node: self.gpus[node] for node in group.nodes}
        return {**_with_tables(report, asked.collective), "asked": asked_json(asked), "gpus": gpus}

    def _gpu_order(self, group: Group, asked: Measurement, folder: Path) -> Order:
        gate = f"{asked.gate_bytes}:{asked.gate_bytes}"
        return Order(
            folder,
            group.nodes,
            {**self.plan["nccl_files"], "job.sh": self.plan["nccl_job"]},
            [
                f"--ntasks={group.ranks}",
                f"--ntasks-per-node={group.per_node}",
                f"--gpus-per-node={group.per_node}",
                f"--switches={self._sites_of(group.nodes)}",
            ],
            [
                "sockets" if self.plan["spans"] else "any",
                self.plan["interface"],
                f"{asked.min_bytes}:{asked.max_bytes}",
                *[gate] * (asked.runs - 1),
            ],
            ["table.*", "figures.*", "log.*", "beside.*"],
        )

    def _search(self, group: Group, asked: Measurement, result: Result) -> list[dict[str, Any]]:
        def one_round(number: int, groups: Groups) -> dict[tuple[str, ...], float | None] | None:
            gate = replace(asked, min_bytes=asked.gate_bytes, max_bytes=asked.gate_bytes, runs=1)
            orders = {}
            for nodes in groups:
                part = replace(group, nodes=nodes)
                orders[nodes] = self._gpu_order(part, gate, self._place(number, nodes))
            return self._round(gate, orders)

        relative = result["spread"]["relative"] if result["spread"] else None
        return suspects(group.nodes, result["floor_gb_per_s"], one_round, relative)

    # Both

    def _worth_a_search(self, nodes: Sequence[str]) -> bool:
        return len(nodes) >= LEAST_NODES and not self.plan["spans"]

    def _place(self, number: int, group: Sequence[str]) -> Path:
        return self.folder / f"round-{number}" / group[0]

    def _round(
        self, asked: Measurement, orders: Mapping[tuple[str, ...], Order]
    ) -> dict[tuple[str, ...], float | None] | None:
        if self.deadline - time.monotonic() < self.limits.start:
            say("no time is left to look for slow nodes")
            return None
        try:
            reports = self._run(list(orders.values()))
        except Refused as refused:
            say(str(refused))
            return None
        ranks = asked.ranks // asked.nodes
        found = {}
        for nodes, report in zip(orders, reports, strict=True):
            of_these = replace(asked, nodes=len(nodes), ranks=ranks * len(nodes))
            whole = JobReport.from_json(_with_tables(report, asked.collective))
            ended = (whole.state, whole.exit_code) == ("COMPLETED", 0)
            figures = read_figures(of_these, whole)
            sound = ended and figures.wrong == 0 and not figures.tables[0].problems and figures.gate
            found[nodes] = figures.gate.busbw_gb_per_s if sound and figures.gate else None
            say(f"{', '.join(nodes)}: {found[nodes]} GB/s")
        return found

    def _run(self, orders: Sequence[Order]) -> list[dict[str, Any]]:
        left = max(self.deadline - time.monotonic(), self.limits.start)
        return run_jobs(orders, replace(self.limits, run=min(self.limits.run, left)))


def _folder_name(word: str, gpus: str) -> str:
    return "-".join([word, *gpus.replace(", ", "+").split(":")])


def _nodes_of(groups: Sequence[Group]) -> list[str]:
    return sorted(node for group in groups for node in group.nodes)


def _lines(output: str, word: str) -> str:
    """The lines of a job's output that are meant for us, as the node said them."""
    return "".join(line + "\n" for line in output.splitlines() if line.startswith(f"# tailrack {word} "))


def _with_tables(report: Mapping[str, Any], collective: str) -> dict[str, Any]:
    """A job's report as JobReport reads it: tables, and NCCL's log, come from files of their own where there are some.

    What else the job has said stays behind the first table: after a failure the reason is there.
    """
    files = report.get("files", {})
    tables = [_figures(files, name, collective) for name in sorted(files) if name.startswith("table.")]
    logs = [files[name] for name in sorted(files) if name.startswith("log.")]
    found = {key: value for key, value in report.items() if key != "files"}
    found["beside"] = [files[name] for name in sorted(files) if name.startswith("beside.")]
    if tables:
        failed = report["state"] != "COMPLETED" or report["exit_code"]
        found["output"] = tables[0] + (report["output"] if failed else "")
        found["repeats"] = tables[1:]
    log = nccl_log.distinct("".join(logs))
    found["log"] = log if len(log) <= LOG_LIMIT else kept(log[: LOG_LIMIT // 2], log[-LOG_LIMIT // 2 :])
    return found


def _figures(files: Mapping[str, str], name: str, collective: str) -> str:
    """A run's figures: the exact ones where they are there and whole (rank.sh), else the table that was printed."""
    printed, exact = files[name], files.get(name.replace("table", "figures"), "")
    if not exact or parse(exact, collective=collective).problems:
        return printed
    return exact + "".join(line for line in printed.splitlines(keepends=True) if line.startswith(REDUCED))


def main(told: Mapping[str, Any]) -> int:
    """Measure, print the report, return the exit status.

    told   `plan`, `jobs` (what it lacks of the jobs on CPUs), `nodes` that take part, and `absent`: why others do not
    """
    # Ended in the middle, it takes its jobs with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan = {**told["plan"], **told["jobs"]}
    folder = Path.home() / ".tailrack" / "validation" / plan["scope"]
    try:
        report = MeasurementRun(plan, told["nodes"], told["absent"], folder).measure()
    except Refused as refused:
        say(str(refused))
        return REFUSED
    sys.stdout.write(json.dumps(report) + "\n")
    return 0
