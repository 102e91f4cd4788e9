"""Metrics of the training benchmark. Pure. Its report comes from a user's process and may contain anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from components.roles.monitoring.exposition import Metric
from components.validation.training_verdict import judge_training
from components.validation.verdict import Verdict

TRAINING = "training_benchmark"  # the name of its files (components/measurement/training.py)


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
