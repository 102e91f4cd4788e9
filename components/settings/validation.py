"""The bandwidth measurement: the section `validation`."""

from typing import Annotated

from pydantic import Field

from components.settings import sizes
from components.settings.draft import Draft
from components.settings.nccl import Nccl, check_nccl
from components.settings.problems import Report
from components.settings.section import Section, key, number
from components.settings.training import Training
from components.settings.types import FreeText, NodeName, Number, Size, Whole


class Validation(Section):
    """The bandwidth measurement that ends every change of the cluster."""

    min_bytes: Size = sizes.smallest_key("64K")
    max_bytes: Size = sizes.largest_key("4M")
    factor: Whole = sizes.factor_key()
    iterations: Whole = sizes.iterations_key(5)
    warmup: Whole = sizes.warmup_key(1)
    gate_bytes: Size = sizes.judged_key(
        "the size whose bus bandwidth is held against the floor; left out, the largest measured"
    )
    ranks_per_node: Whole = number("processes a node", 1, 1024, breaks="no process would measure", default=1)
    time_limit_minutes: Whole = number(
        "limit of each measuring job, minutes",
        1,
        1440,
        breaks="Slurm would end the measurement as it starts",
        default=10,
    )
    queue_limit_seconds: Whole = number(
        "how long a measurement waits for other jobs on its nodes before it takes only new nodes and a peer of each, "
        "or is BUSY; it keeps nobody out meanwhile",
        0,
        604800,
        breaks="the measurement would wait for other jobs for ever",
        default=30,
    )
    floors_gb_per_s: dict[str, Annotated[Number, Field(gt=0)]] = key(
        "least bus bandwidth by scope (a site's name, `cross-site`, or `node` for each node by itself), GB/s",
        wants="a mapping from a site's name or cross-site to GB/s above 0",
        breaks="the measurement would be held against nothing",
        fix="write a number above 0, or leave the scope out to have it UNJUDGED",
        default={},
    )
    floors_from: FreeText = key(
        "where `floors_gb_per_s` come from, shown beside them; `make floors` writes it",
        wants="a short text",
        breaks="nobody would know later where the floors are from",
        fix="write any text, or leave it out",
        default="",
    )
    nodes: tuple[NodeName, ...] = key(
        "the nodes that are measured; left out, all that can run jobs",
        wants="a list of node names",
        breaks="nothing would be measured",
        fix="write [a1, a2], or leave it out",
        otherwise="all",
        default=(),
    )
    nccl: Nccl = key("how GPUs are measured", default=Nccl())
    training: Training | None = key(
        "the training benchmark, after the bandwidth; `{}` for it as it is, left out for none", default=None
    )
    rerun: FreeText = key(
        "change this text to measure an unchanged cluster again",
        wants="a short text",
        breaks="a change of it starts a new measurement",
        fix="write any text",
        default="",
    )


def check_validation(validation: Draft, report: Report) -> None:
    """Report what cannot be measured or judged."""
    sizes.check_sizes_of(validation, report)
    check_nccl(validation.section("nccl"), report)
