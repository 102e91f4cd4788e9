"""The training benchmark: the section `validation.training`."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.draft import Draft
from components.settings.nccl import check_absolute, check_image
from components.settings.problems import Report
from components.settings.section import Section, key, number
from components.settings.types import NodeName, Number, Whole, refuse


def _plain(value: str) -> str:
    if re.search(r"\s", value):
        refuse("contains a blank")
    return value


class Training(Section):
    """The training benchmark: images per second of a small vision model trained on all nodes together."""

    nodes: tuple[NodeName, ...] = key(
        "nodes that train together; default: all measured nodes. If some are at another site, their gradients cross "
        "sites at every step",
        wants="a list of node names",
        breaks="nothing would train",
        fix="write [a1, a2], or leave it out",
        default_text="those of `validation.nodes`",
        default=(),
    )
    image: Annotated[str, Field(max_length=500), AfterValidator(check_image)] = key(
        "container image with PyTorch, as `srun --container-image` takes it (role enroot_pyxis)",
        wants="an image's name",
        breaks="the benchmark could not run",
        fix="write a name such as pytorch, or leave it out",
        default="",
    )
    python: Annotated[str, Field(max_length=1000), AfterValidator(check_absolute), AfterValidator(_plain)] = key(
        "the Python with PyTorch, on every node or in the image",
        wants="a path such as /srv/torch/bin/python",
        breaks="the benchmark could not run",
        fix="write one, or leave it out",
        default_text="`/usr/bin/python3`; `python3` in an image",
        default="",
    )
    steps: Whole = number(
        "timed steps in each of the three runs", 5, 1000, breaks="the median would mean nothing", default=30
    )
    warmup: Whole = number(
        "untimed steps before each run", 0, 1000, breaks="slow first steps would be measured", default=5
    )
    floor_images_per_second: Annotated[Number, Field(gt=0)] | None = key(
        "lowest acceptable images per second of each GPU, or of each node's CPUs",
        wants="a number above 0",
        breaks="the result would have no floor",
        fix="write one, or leave it out to get UNJUDGED",
        default=None,
    )
    time_limit_minutes: Whole = number(
        "time limit of the job, in minutes", 1, 1440, breaks="Slurm would kill the benchmark at once", default=10
    )


def check_training(training: Draft, containers: bool, report: Report) -> None:
    """Report a container image in a cluster without containers."""
    if not containers and (image := training.value("image")):
        breaks = "the cluster has no containers, so the benchmark could not run in one"
        fix = "write a section tailrack:containers, or python: PATH of a Python that has PyTorch on every node"
        path = training.path_of("image")
        report.add(path, f"{report.value(path, image)} without a section containers", breaks, fix)
