"""Let the sampler of GPUs watch for jobs that hang, on a machine with GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.files import File
from components.node.step.step import Step
from components.roles.job_hangs.paths import ANSWER, ASK_RAS, MINUTES
from components.roles.job_hangs.remove import remove_watch


@dataclass(frozen=True)
class WatchValues:
    """The programs, and the minutes; 0 without job_hangs in the config.

    node_gpu_count   0 without GPUs
    """

    node_gpu_count: int
    job_hangs_minutes: int
    job_hangs_ask_ras: str
    job_hangs_answer: str


def compute(step: Step, values: WatchValues) -> None:
    """Install it, or remove it."""
    if not (values.job_hangs_minutes and values.node_gpu_count):
        remove_watch()
        return
    files.write_all(
        [
            File(ASK_RAS, values.job_hangs_ask_ras, 0o755),
            File(ANSWER, values.job_hangs_answer, 0o755),
            File(MINUTES, str(values.job_hangs_minutes)),
        ]
    )
