"""The sampler on machines with GPUs, and the recorder on the head node. Records in Slurm stay."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.files import File
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.usage.samples import ANSWER, POWERLESS, RECORDED, RECORDER, SAMPLER, SAMPLES, TOLD, UNUSED_GPUS


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


@dataclass(frozen=True)
class RecorderValues:
    """The recorder.

    usage_recorded      False without accounting or without tailrack's job scripts
    usage_unused_gpus   the limits for unused GPUs as JSON; empty without any
    """

    usage_recorded: bool
    usage_unused_gpus: str
    usage_recorder: str


def services(step: Step, values: RecorderValues) -> None:
    """Install it, or remove it."""
    if not values.usage_recorded:
        remove_recorder()
        return
    if values.usage_unused_gpus:
        files.write(UNUSED_GPUS, values.usage_unused_gpus)
    else:
        files.remove(UNUSED_GPUS)
    files.write(RECORDER, values.usage_recorder, 0o755)


def leave(step: Step) -> None:
    """Remove both."""
    do_each(remove_sampler, remove_recorder)


def remove_sampler() -> None:
    """Remove the sampler and its samples."""
    for path in (SAMPLER, ANSWER, POWERLESS):
        files.remove(path)
    files.remove_folder(SAMPLES)


def remove_recorder() -> None:
    """Remove the recorder."""
    for path in (RECORDER, RECORDED, UNUSED_GPUS, TOLD):
        files.remove(path)
