"""Install the sampler on a machine with GPUs."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.files import File
from components.node.step.step import Step
from components.roles.usage.paths import ANSWER, SAMPLER
from components.roles.usage.remove import remove_sampler


@dataclass(frozen=True)
class SamplerValues:
    """The sampler.

    node_gpu_count   0 without GPUs
    usage_sampled    False without tailrack's job scripts
    """

    node_gpu_count: int
    usage_sampled: bool
    usage_sampler: str
    usage_answer: str


def compute(step: Step, values: SamplerValues) -> None:
    """Install it, or remove it."""
    if not (values.usage_sampled and values.node_gpu_count):
        remove_sampler()
        return
    files.write_all([File(SAMPLER, values.usage_sampler, 0o755), File(ANSWER, values.usage_answer, 0o755)])
