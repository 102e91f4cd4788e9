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
        refuse("has a blank in it")
    return value


class Training(Section):
    """The training benchmark: images a second of a small vision model, trained over the nodes together."""

    nodes: tuple[NodeName, ...] = key(
        "the nodes that train together; left out, all that are measured: where some are at another site, their "
        "gradients go between sites at every step",
        wants="a list of node names",
        breaks="nothing would train",
        fix="write [a1, a2], or leave it out",
        otherwise="those of `validation.nodes`",
        default=(),
    )
    image: Annotated[str, Field(max_length=500), AfterValidator(check_image)] = key(
        "the container image that has PyTorch, as `srun --container-image` takes it (role enroot_pyxis)",
        wants="an image's name",
        breaks="nothing could be run",
        fix="write a name such as pytorch, or leave it out",
        default="",
    )
    python: Annotated[str, Field(max_length=1000), AfterValidator(check_absolute), AfterValidator(_plain)] = key(
        "the Python that has PyTorch, on every node or in the image",
        wants="a path such as /srv/torch/bin/python",
        breaks="nothing could be run",
        fix="write one, or leave it out",
        otherwise="`/usr/bin/python3`; `python3` in an image",
        default="",
    )
    steps: Whole = number(
        "timed steps of each of the three runs", 5, 1000, breaks="their middle would say nothing", default=30
    )
    warmup: Whole = number(
        "steps before, which count for nothing", 0, 1000, breaks="the first steps would be measured", default=5
    )
    floor_images_per_second: Annotated[Number, Field(gt=0)] | None = key(
        "least images a second of each GPU, on CPUs of each node",
        wants="a number above 0",
        breaks="the figure would be held against nothing",
        fix="write one, or leave it out: UNJUDGED",
        default=None,
    )
    time_limit_minutes: Whole = number(
        "limit of the job, minutes", 1, 1440, breaks="Slurm would end the benchmark as it starts", default=10
    )


def check_training(training: Draft, containers: bool, report: Report) -> None:
    """Report an image where the cluster has no containers."""
    if not containers and (image := training.value("image")):
        breaks = "the cluster has no containers, and the benchmark could not run in one"
        fix = "write a section tailrack:containers, or python: PATH of a Python that has PyTorch on every node"
        at = training.at("image")
        report.add(at, f"{report.value(at, image)} without a section containers", breaks, fix)
