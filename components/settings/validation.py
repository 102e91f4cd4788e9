"""The measurements of the section `validation`: bandwidth, and the training benchmark."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated

from pydantic import AfterValidator, Field

from components.settings.nccl import Nccl, check_absolute, check_image, check_nccl, check_sizes_of, largest
from components.settings.problems import Report
from components.settings.section import Section, key
from components.settings.storage_measurement import Floor, StorageMeasurement
from components.settings.types import FreeText, NodeNames, Number, Size, Whole, refuse
from components.validation.collectives import parse_size


class Validation(Section):
    """The bandwidth measurement at the end of every change to the cluster."""

    min_bytes: Size = parse_size("64K")
    """Smallest message."""
    max_bytes: Size = parse_size("4M")
    """Largest message."""
    factor: Whole = key(ge=2, le=1024, default=4)
    """Factor from one size to the next."""
    iterations: Whole = key(ge=1, le=100_000, default=5)
    """Timed runs per size."""
    warmup: Whole = key(ge=0, le=100_000, default=1)
    """Warm-up runs per size."""
    gate_bytes: Size = key(default_text="the largest measured", default_factory=largest)
    """Message size whose bus bandwidth is compared with the floor."""
    ranks_per_node: Whole = key(ge=1, le=1024, default=1)
    """Processes per node."""
    time_limit_minutes: Whole = key(ge=1, le=1440, default=10)
    """Time limit of each measuring job, in minutes."""
    queue_limit_seconds: Whole = key(ge=0, le=604800, default=30)
    """How long a measurement waits for other jobs on its nodes. After that it measures only the new nodes, each with
    a peer, or reports BUSY. Other jobs can start meanwhile."""
    floors_gb_per_s: dict[str, Annotated[Number, Field(gt=0)]] = key(
        wants="a mapping from a site's name or cross-site to GB/s above 0",
        fix="write a number above 0, or remove the scope to get UNJUDGED",
        default={},
    )
    """Lowest acceptable bus bandwidth in GB/s, by scope: a site's name, `cross-site`, or `node` for each node."""
    floors_from: FreeText = ""
    """Source of `floors_gb_per_s`, shown beside them; `make floors` writes it."""
    nodes: NodeNames = ()
    """Nodes to measure; default: all nodes that run jobs."""
    nccl: Nccl = Nccl()
    """Measurement of GPUs."""
    training: Training | None = None
    """Training benchmark after the bandwidth measurement; `{}` runs it with its defaults."""
    storage: StorageMeasurement | None = None
    """Storage measurement after the other measurements; `{}` runs it with its defaults."""
    rerun: FreeText = ""
    """Change this text to measure an unchanged cluster again."""

    @property
    def measured(self) -> Iterator[Validation | Training | StorageMeasurement]:
        """Yield each section that lists nodes to measure."""
        yield from filter(None, (self, self.training, self.storage))


def check_validation(validation: Validation, report: Report) -> None:
    """Report sizes that cannot be measured or judged."""
    check_sizes_of(validation, report)
    check_nccl(validation.nccl, report)


def _plain(value: str) -> str:
    if re.search(r"\s", value):
        refuse("contains a blank")
    return value


class Training(Section):
    """The training benchmark: images per second of a small vision model trained on all nodes together."""

    nodes: NodeNames = key(default_text="those of `validation.nodes`", default=())
    """Nodes that train together; default: all measured nodes. If some are at another site, their gradients cross
    sites at every step."""
    image: Annotated[str, Field(max_length=500), AfterValidator(check_image)] = key(
        wants="an image's name", fix="write a name such as pytorch, or leave it out", default=""
    )
    """Container image with PyTorch, as `srun --container-image` takes it (role enroot_pyxis)."""
    python: Annotated[str, Field(max_length=1000), AfterValidator(check_absolute), AfterValidator(_plain)] = key(
        wants="a path such as /srv/torch/bin/python",
        fix="write one, or leave it out",
        default_text="`/usr/bin/python3`; `python3` in an image",
        default="",
    )
    """The Python with PyTorch, on every node or in the image."""
    steps: Whole = key(ge=5, le=1000, default=30)
    """Timed steps in each of the three runs."""
    warmup: Whole = key(ge=0, le=1000, default=5)
    """Untimed steps before each run."""
    floor_images_per_second: Floor | None = None
    """Lowest acceptable images per second of each GPU, or of each node's CPUs."""
    time_limit_minutes: Whole = key(ge=1, le=1440, default=10)
    """Time limit of the job, in minutes."""


def check_training(training: Training, containers: bool, report: Report) -> None:
    """Report a container image in a cluster without containers."""
    if not containers and training.image:
        breaks = "the cluster has no containers, so the benchmark could not run in one"
        fix = "write a section tailrack:containers, or python: PATH of a Python that has PyTorch on every node"
        path = report.at(training, "image")
        report.add(path, f"{report.value(path, training.image)} without a section containers", breaks, fix)
