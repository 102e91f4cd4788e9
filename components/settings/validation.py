"""The measurements of the section `validation`: bandwidth, and the training benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings import sizes
from components.settings.nccl import Nccl, check_absolute, check_image, check_nccl
from components.settings.problems import Report
from components.settings.section import Section, key, number
from components.settings.storage_measurement import StorageMeasurement
from components.settings.types import FreeText, NodeName, Number, Size, Whole, refuse


class Validation(Section):
    """The bandwidth measurement at the end of every change to the cluster."""

    min_bytes: Size = sizes.smallest_key("64K")
    max_bytes: Size = sizes.largest_key("4M")
    factor: Whole = sizes.factor_key()
    iterations: Whole = sizes.iterations_key(5)
    warmup: Whole = sizes.warmup_key(1)
    gate_bytes: Size = sizes.judged_key("message size whose bus bandwidth is compared with the floor")
    ranks_per_node: Whole = number("processes per node", 1, 1024, breaks="no process would measure", default=1)
    time_limit_minutes: Whole = number(
        "time limit of each measuring job, in minutes",
        1,
        1440,
        breaks="Slurm would kill the measurement at once",
        default=10,
    )
    queue_limit_seconds: Whole = number(
        "how long a measurement waits for other jobs on its nodes. After that it measures only the new nodes, each "
        "with a peer, or reports BUSY. Other jobs can start meanwhile",
        0,
        604800,
        breaks="the measurement would wait forever for other jobs",
        default=30,
    )
    floors_gb_per_s: dict[str, Annotated[Number, Field(gt=0)]] = key(
        "lowest acceptable bus bandwidth in GB/s, by scope: a site's name, `cross-site`, or `node` for each node",
        wants="a mapping from a site's name or cross-site to GB/s above 0",
        breaks="the measurement would have no floor",
        fix="write a number above 0, or remove the scope to get UNJUDGED",
        default={},
    )
    floors_from: FreeText = key(
        "source of `floors_gb_per_s`, shown beside them; `make floors` writes it",
        wants="a short text",
        breaks="the source of the floors would be lost",
        fix="write any text, or leave it out",
        default="",
    )
    nodes: tuple[NodeName, ...] = key(
        "nodes to measure; default: all nodes that run jobs",
        wants="a list of node names",
        breaks="nothing would be measured",
        fix="write [a1, a2], or leave it out",
        default_text="all",
        default=(),
    )
    nccl: Nccl = key("measurement of GPUs", default=Nccl())
    training: Training | None = key(
        "training benchmark after the bandwidth measurement; `{}` runs it with its defaults", default=None
    )
    storage: StorageMeasurement | None = key(
        "storage measurement after the other measurements; `{}` runs it with its defaults", default=None
    )
    rerun: FreeText = key(
        "change this text to measure an unchanged cluster again",
        wants="a short text",
        breaks="only a change of the text starts a new measurement",
        fix="write any text",
        default="",
    )

    @property
    def measured(self) -> Iterator[Validation | Training | StorageMeasurement]:
        """Yield each section that lists nodes to measure."""
        yield from filter(None, (self, self.training, self.storage))


def check_validation(validation: Validation, report: Report) -> None:
    """Report sizes that cannot be measured or judged."""
    sizes.check_sizes_of(validation, report)
    check_nccl(validation.nccl, report)


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


def check_training(training: Training, containers: bool, report: Report) -> None:
    """Report a container image in a cluster without containers."""
    if not containers and training.image:
        breaks = "the cluster has no containers, so the benchmark could not run in one"
        fix = "write a section tailrack:containers, or python: PATH of a Python that has PyTorch on every node"
        path = report.at(training, "image")
        report.add(path, f"{report.value(path, training.image)} without a section containers", breaks, fix)
