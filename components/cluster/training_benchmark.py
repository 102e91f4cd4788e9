"""The training benchmark: after the bandwidth measurement, one job on the nodes trains a small vision model.

It runs again if its inputs change, like the measurement of a scope (nccl_validation.py), and uses the same script.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi

from components.cluster.head_link import HeadLink
from components.cluster.job_measurement import Member, chosen_nodes, measuring_step
from components.measurement import training
from components.settings.training import Training
from components.settings.validation import Validation
from components.validation.training_verdict import judge_training

NAME = "training"
_NO_FIGURES = ("nodes", "floor_images_per_second", "time_limit_minutes")  # settings that change no result


class TrainingBenchmark(pulumi.ComponentResource):
    """The training benchmark of a cluster.

    results   Output[dict]: the result of components.validation.training_verdict.judge_training, with `retries`

    members     the nodes that run jobs
    after       results of the bandwidth measurement, which runs first
    before      `results` of the previous run, or None
    """

    def __init__(
        self,
        link: HeadLink,
        members: Sequence[Member],
        validation: Validation,
        settings: Training,
        after: pulumi.Output[Any],
        before: pulumi.Output[Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        # The state keeps the floor, so that cli/checks finds a floor that was removed or lowered.
        floor = settings.floor_images_per_second
        inputs = {"floors": {} if floor is None else {NAME: floor}, "scopes": [NAME]}
        super().__init__("tailrack:validation:TrainingBenchmark", NAME, inputs, opts)
        nodes = chosen_nodes(members, settings.nodes, validation)
        training_settings = {name: value for name, value in settings.model_dump().items() if name not in _NO_FIGURES}
        reported = measuring_step(
            link,
            nodes,
            validation,
            name=NAME,
            scope=training.SCOPE,
            script=training.script(),
            settings={**training_settings, "version": training.VERSION},
            plan=lambda nodes: training.training_plan(nodes, settings),
            job=training.training_job(settings),
            run_limit=training.run_seconds(settings),
            after=after,
            before=before,
            parent=self,
        )
        self.results: pulumi.Output[dict[str, Any]] = reported.apply(
            lambda resolved: {
                **judge_training(resolved["report"], floor, validation.floors_from or "config"),
                "retries": resolved["retries"],
            },
        )
        self.register_outputs({"results": self.results})
