"""The training benchmark as figures. Pure. From what is kept of it on the head node: words of a user, of any kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from components.roles.monitoring.exposition import Metric
from components.validation.training_verdict import judge_training
from components.validation.verdict import Verdict

TRAINING = "training_benchmark"  # as its files are named (components/measurement/training.py)


def training_figures(kept: Mapping[str, Any], floor: float | None) -> Sequence[Metric]:
    """Return images a second, of all ranks and of each, jitter, the verdict and its moment.

    floor   least images a second and rank, of the config; None for none
    """
    result = judge_training(kept, floor)
    labels = {"device": result["device"] or "unknown"}
    figures = (
        ("tailrack_training_images_per_second", "Of the training benchmark, all ranks.", result["images_per_second"]),
        (
            "tailrack_training_images_per_second_per_rank",
            "Of the training benchmark, each GPU; on CPUs each node.",
            result["images_per_second_per_rank"],
        ),
        ("tailrack_training_jitter_ratio", "How much longer a slow step takes than the middle one.", result["jitter"]),
        (
            "tailrack_training_floor_images_per_second_per_rank",
            "What it is held against.",
            result["floor_images_per_second"],
        ),
    )
    found = [Metric(name, text, [(labels, value)]) for name, text, value in figures if value is not None]
    verdicts = [({"verdict": each}, int(each == result["verdict"])) for each in get_args(Verdict)]
    found.append(Metric("tailrack_training_verdict", "1 for the verdict of the last training benchmark.", verdicts))
    if isinstance(at := kept.get("measured_at"), int | float):
        found.append(Metric("tailrack_training_measured_timestamp_seconds", "When it was measured.", [({}, at)]))
    return found
