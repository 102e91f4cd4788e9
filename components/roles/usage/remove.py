"""Remove the sampler of a node, or the recorder of the head node. Records in Slurm stay."""

from __future__ import annotations

from components.node import files
from components.roles.usage.paths import (
    ANSWER,
    POWERLESS,
    RECORDED,
    RECORDER,
    SAMPLER,
    SAMPLES,
    TOLD,
    UNUSED_GPUS,
)


def remove_sampler() -> None:
    """Remove the sampler and its samples."""
    for path in (SAMPLER, ANSWER, POWERLESS):
        files.remove(path)
    files.remove_folder(SAMPLES)


def remove_recorder() -> None:
    """Remove the recorder."""
    for path in (RECORDER, RECORDED, UNUSED_GPUS, TOLD):
        files.remove(path)
