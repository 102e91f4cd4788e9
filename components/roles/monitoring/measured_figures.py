"""Metrics of measurements: each scope's bus bandwidth, and the training benchmark. Pure.

The reports on the head node (components/measurement/validate.py) come from a user's process and may contain anything.
The verdict here compares only figure and floor; `make up` also checks which network carried the data.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, get_args

from components.roles.monitoring.exposition import Metric, Sample
from components.validation.model import Measurement
from components.validation.results import Conditions, judge_scope
from components.validation.training_verdict import judge_training
from components.validation.verdict import Result, Verdict

VERDICTS: tuple[str, ...] = get_args(Verdict)
_BUSBW = ("tailrack_busbw_gb_per_s", "Bus bandwidth of the last measurement, 1e9 bytes a second.")
_FLOOR = ("tailrack_busbw_floor_gb_per_s", "Floor of the bus bandwidth.")
_MOMENT = ("tailrack_measured_timestamp_seconds", "Time of the last measurement.")
_VERDICT = ("tailrack_measurement_verdict", "1 for the verdict of the last measurement.")
TRAINING = "training_benchmark"  # the name of its files (components/measurement/storage.py)


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
