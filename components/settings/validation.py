"""The bandwidth measurement: the section `validation`."""

from typing import Annotated

from pydantic import Field

from components.settings import sizes
from components.settings.draft import Draft
from components.settings.nccl import Nccl, check_nccl
from components.settings.problems import Report
from components.settings.section import Section, key, number
from components.settings.storage_measurement import StorageMeasurement
from components.settings.training import Training
from components.settings.types import FreeText, NodeName, Number, Size, Whole


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


def check_validation(validation: Draft, report: Report) -> None:
    """Report sizes that cannot be measured or judged."""
    sizes.check_sizes_of(validation, report)
    check_nccl(validation.section("nccl"), report)
