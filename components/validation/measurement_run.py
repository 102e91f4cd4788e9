"""Measure one scope from the head node as a user: the preflight, the measuring jobs, and the search for slow nodes.

The `plan` of its task is that of measurement_jobs/plan.py. Needs only Python 3.10.
"""

import json
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from components.validation.fabric_facts import WORD as FABRIC
from components.validation.fabric_facts import FabricFacts, read_fabric_facts
from components.validation.figures import read_figures, with_tables
from components.validation.groups import Group, count, groups_of, single_node_groups
from components.validation.job_files import MEASUREMENT, build_files, text_of
from components.validation.model import JobReport, Measurement
from components.validation.preflight.findings import WORD as PREFLIGHT
from components.validation.preflight.gpu_health import WORD as GPU_SPEED
from components.validation.results import Conditions, judge_group, judge_scope, needs_search, settings_json
from components.validation.slow_nodes import LEAST_NODES, Groups, suspects
from components.validation.slurm_jobs import REPEAT, Limits, Order, Refused, answer, run_jobs, say
from components.validation.transport import SOCKETS
from components.validation.untrusted import lines_in
from components.validation.verdict import Result

GpuMeasurement = tuple[Group, Measurement, Path]
Bandwidths = dict[tuple[str, ...], float | None]


class MeasurementRun:
    def __init__(self, plan: Mapping[str, Any], nodes: Sequence[str], absent: Mapping[str, str], folder: Path) -> None:
        self.plan, self.nodes, self.absent, self.folder = plan, tuple(nodes), dict(absent), folder
        self.limits = Limits(plan["start_seconds"], plan["run_seconds"])
        self.deadline = time.monotonic() + plan["measurement_seconds"]
        self.conditions = Conditions(
            plan["floor"], plan["node_floor"], plan["expected_interface"], plan["spans"], rdma=plan["rdma"]
        )
        self.gpus = {node: plan["gpus"].get(node, "") for node in self.nodes}

    def measure(self) -> dict[str, Any]:
        """Run all jobs. Raises Refused if Slurm rejects the first of them."""
        groups, left_out = self._groups()
        prepared = self._prepare(groups)
        output = "".join(report["output"] for report in prepared)
        failed = [report for report in prepared if report["state"] != "COMPLETED" or report["exit_code"]]
        if groups and failed:
            report = {**failed[0], "output": output, "gpus": {node: self.gpus[node] for node in _nodes_of(groups)}}
            del report["files"]
        elif groups:
            report = self._on_gpus(groups, read_fabric_facts(output))
            self.absent |= left_out
        else:
            report = self._on_cpus()
        speed = lines_in(output, GPU_SPEED)
        return {
            **report,
            **({"gpu_speed": speed} if speed else {}),
            "there": lines_in(output, FABRIC),
            "preflight": lines_in(output, PREFLIGHT),
            "absent": {**self.absent, **report.get("absent", {})},
        }

    def _groups(self) -> tuple[tuple[Group, ...], dict[str, str]]:
        nccl = self.plan["nccl"]
        if nccl is None:
            return (), {}
        return groups_of(self.gpus, self.plan["sites"], nccl["most_gpus"], nccl["mpi"])

    # Preparation

    def _prepare(self, groups: Sequence[Group]) -> list[dict[str, Any]]:
        """Run the first job over all nodes: preflight, fabric facts, and a check of the program.

        One job per kind of GPUs, all at once: a job gets only as many GPUs per node as its smallest node has.
        """
        if not groups and not self.plan["preflight"]:
            return []
        files = {"job.sh": text_of(f"{MEASUREMENT}/prepare.sh"), **(build_files(self.plan["build"]) if groups else {})}
        alike: dict[str, list[str]] = {}
        for node in _nodes_of(groups) or self.nodes:
            alike.setdefault(self.gpus[node], []).append(node)
        return self._run(
            [
                Order(
                    self.folder / _folder_name("prepare", gpus),
                    tuple(nodes),
                    # Only the nodes of the same job, because they test the paths to each other at the same time.
                    {**files, "about.json": json.dumps(self._about(nodes))},
                    [
                        *self.plan["prepare_options"],
                        f"--switches={self._sites_of(nodes)}",
                        *([f"--gpus-per-node={count(gpus)}"] if gpus else []),
                    ],
                    [self.plan["preflight"]],
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
        settings = Measurement(**self.plan["cpu"])
        settings = replace(settings, nodes=len(self.nodes), ranks=settings.ranks // settings.nodes * len(self.nodes))
        report = self._run([self._cpu_order("cpu_job", self.folder, self.nodes)])[0]
        del report["files"]
        result, _ = judge_scope(settings, report, self.conditions, lambda _: {})
        report["suspects"] = self._search(self.nodes, settings, result, partial(self._cpu_order, "gate_job"))
        return report

    def _cpu_order(self, job: str, folder: Path, nodes: tuple[str, ...]) -> Order:
        tasks = len(nodes) * self.plan["ranks_per_node"]
        return Order(folder, nodes, {"job.sh": self.plan[job]}, [f"--ntasks={tasks}"])

    # On GPUs

    def _on_gpus(self, groups: Sequence[Group], facts: Mapping[str, FabricFacts]) -> dict[str, Any]:
        single_node = self._alone(groups, facts)
        entries: list[dict[str, Any]] = []
        slow_nodes: list[dict[str, Any]] = []
        for group in groups:
            if len(group.nodes) == 1:
                entries += [entry for entry in single_node if tuple(entry["gpus"]) == group.nodes]
                continue
            settings = self._settings(group, facts)
            folder = self.folder / _folder_name(f"gpus-mpi{group.mpi}" if group.mpi else "gpus", group.gpus)
            (entry,) = self._steady([(group, settings, folder)], facts, self.conditions.floor)
            if not entries:
                self.folder.joinpath(REPEAT).write_text(f"exec sh {shlex.quote(str(folder / REPEAT))}\n")
            entries.append(entry)
            result = judge_group(entry, facts, self.conditions.floor, self.conditions)
            slow_nodes += self._search(group.nodes, settings, result, partial(self._gate_order, group, settings))
        return {**entries[0], "others": entries[1:], "alone": single_node, "suspects": slow_nodes}

    def _alone(self, groups: Sequence[Group], facts: Mapping[str, FabricFacts]) -> list[dict[str, Any]]:
        if self.plan["spans"]:
            return []
        groups = single_node_groups(self.gpus, _nodes_of(groups), self.plan["nccl"]["most_gpus"])
        measurements = [
            (group, self._settings(group, facts), self.folder / f"node-{group.nodes[0]}") for group in groups
        ]
        return self._steady(measurements, facts, self.conditions.node_floor)

    def _steady(
        self, measurements: Sequence[GpuMeasurement], facts: Mapping[str, FabricFacts], floor: float | None
    ) -> list[dict[str, Any]]:
        """Measure groups side by side, and repeat those whose runs differ too much."""
        entries = self._gpu_runs(measurements)
        results = [judge_group(entry, facts, floor, self.conditions) for entry in entries]
        unsteady = [index for index, result in enumerate(results) if result["verdict"] == "UNSTABLE"]
        if not unsteady or self.deadline - time.monotonic() < self.limits.start:
            return entries
        names = [name for index in unsteady for name in measurements[index][0].nodes]
        say(f"repeating the measurement because runs differ: {', '.join(names)}")
        repeats = [(group, settings, path.with_name(f"{path.name}-again")) for group, settings, path in measurements]
        try:
            second = self._gpu_runs([repeats[index] for index in unsteady])
        except Refused as refused:
            say(str(refused))
            return entries
        for index, entry in zip(unsteady, second, strict=True):
            spread = results[index]["spread"]
            entries[index] = {**entry, "first_runs": spread["runs"] if spread else []}
        return entries

    def _settings(self, group: Group, facts: Mapping[str, FabricFacts]) -> Measurement:
        """Return the settings for a group. Over sockets, the largest sizes would take minutes each."""
        nccl = dict(self.plan["nccl"])
        del nccl["most_gpus"], nccl["mpi"]
        socket_bytes = nccl.pop("socket_max_bytes")
        settings = Measurement(**nccl, ranks=group.ranks, nodes=len(group.nodes))
        over_sockets = self.conditions.expect(group.nodes, facts).transport == SOCKETS
        sizes = [size for size in settings.sizes() if size <= socket_bytes]
        if not over_sockets or settings.gate_bytes <= socket_bytes or not sizes:
            return settings
        return replace(settings, max_bytes=sizes[-1], gate_bytes=sizes[-1])

    def _gpu_runs(self, measurements: Sequence[GpuMeasurement]) -> list[dict[str, Any]]:
        orders = [self._gpu_order(*measurement, self.plan["more_collectives"]) for measurement in measurements]
        reports = self._run(orders) if orders else []
        return [
            self._entry(group, settings, report)
            for (group, settings, _), report in zip(measurements, reports, strict=True)
        ]

    def _entry(self, group: Group, settings: Measurement, report: Mapping[str, Any]) -> dict[str, Any]:
        gpus = {node: self.gpus[node] for node in group.nodes}
        collectives = [settings.collective, *self.plan["more_collectives"]]
        return {**with_tables(report, collectives, settings.runs), "asked": settings_json(settings), "gpus": gpus}

    def _gpu_order(self, group: Group, settings: Measurement, folder: Path, more: Sequence[str] = ()) -> Order:
        """Return the job. `more`: collectives to measure after the first one."""
        sizes, gate = (f"{settings.min_bytes}:{settings.max_bytes}", f"{settings.gate_bytes}:{settings.gate_bytes}")
        runs = [sizes, *[gate] * (settings.runs - 1)]
        each = self.plan["gpus_per_process"]
        each = each if group.per_node % each == 0 else 1
        return Order(
            folder,
            group.nodes,
            {
                "rank.sh": text_of(f"{MEASUREMENT}/rank.sh"),
                **build_files(self.plan["build"]),
                "job.sh": self.plan["nccl_job"],
            },
            [
                f"--ntasks={group.ranks // each}",
                f"--ntasks-per-node={group.per_node // each}",
                f"--gpus-per-node={group.per_node}",
                f"--switches={self._sites_of(group.nodes)}",
            ],
            [
                "sockets" if self.plan["spans"] else "any",
                self.plan["interface"],
                str(each),
                *runs,
                *[f"{run}:{collective}" for collective in more for run in runs],
            ],
            ["table.*", "figures.*", "log.*", "beside.*"],
        )

    def _gate_order(self, group: Group, settings: Measurement, folder: Path, nodes: tuple[str, ...]) -> Order:
        return self._gpu_order(replace(group, nodes=nodes), settings.at_gate(), folder)

    # CPUs and GPUs

    def _search(
        self,
        nodes: Sequence[str],
        settings: Measurement,
        result: Result,
        order: Callable[[Path, tuple[str, ...]], Order],
    ) -> list[dict[str, Any]]:
        """Return the suspects if the result asks for a search. `order` makes the job of a group in a folder."""

        def one_round(number: int, groups: Groups) -> Bandwidths | None:
            folder = self.folder / f"round-{number}"
            return self._round(settings.at_gate(), {group: order(folder / group[0], group) for group in groups})

        if len(nodes) < LEAST_NODES or self.plan["spans"] or not needs_search(result):
            return []
        relative = result["spread"]["relative"] if result["spread"] else None
        return suspects(nodes, result["floor_gb_per_s"], one_round, relative)

    def _round(self, settings: Measurement, orders: Mapping[tuple[str, ...], Order]) -> Bandwidths | None:
        if self.deadline - time.monotonic() < self.limits.start:
            say("no time is left to search for slow nodes")
            return None
        try:
            reports = self._run(list(orders.values()))
        except Refused as refused:
            say(str(refused))
            return None
        ranks = settings.ranks // settings.nodes
        bandwidths: Bandwidths = {}
        for nodes, report in zip(orders, reports, strict=True):
            group_settings = replace(settings, nodes=len(nodes), ranks=ranks * len(nodes))
            job_report = JobReport.from_json(with_tables(report, [settings.collective]))
            completed = (job_report.state, job_report.exit_code) == ("COMPLETED", 0)
            figures = read_figures(group_settings, job_report)
            valid = completed and figures.wrong == 0 and not figures.tables[0].problems and figures.gate
            bandwidths[nodes] = figures.gate.busbw_gb_per_s if valid and figures.gate else None
            say(f"{', '.join(nodes)}: {bandwidths[nodes]} GB/s")
        return bandwidths

    def _run(self, orders: Sequence[Order]) -> list[dict[str, Any]]:
        left = max(self.deadline - time.monotonic(), self.limits.start)
        return run_jobs(orders, replace(self.limits, run=min(self.limits.run, left)))


def _folder_name(word: str, gpus: str) -> str:
    return "-".join([word, *gpus.replace(", ", "+").split(":")])


def _nodes_of(groups: Sequence[Group]) -> list[str]:
    return sorted(node for group in groups for node in group.nodes)


def _measure(task: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    return MeasurementRun(task["plan"], task["nodes"], task["absent"], folder).measure()


# Measure, print the report, return the exit status.
main = partial(answer, _measure)
