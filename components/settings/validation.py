"""The bandwidth measurement: the section `validation`, and what its sizes must be to one another."""

from typing import Annotated

from pydantic import Field

from components.settings.draft import Draft
from components.settings.problems import Report
from components.settings.section import Section, key, number, size
from components.settings.types import FreeText, Number, Size, Whole
from components.validation.sizes import format_size, parse_size, sizes_between


def _largest(data: dict[str, int]) -> int:
    smallest, largest = data["min_bytes"], data["max_bytes"]
    return sizes_between(smallest, largest, data["factor"])[-1]


class Validation(Section):
    """The bandwidth measurement that ends every change of the cluster."""

    min_bytes: Size = size("smallest message", "the measurement would have no first size", default=parse_size("64K"))
    max_bytes: Size = size("largest message", "the measurement would have no last size", default=parse_size("4M"))
    factor: Whole = number(
        "each size is the one before times this", 2, 1024, "the sizes would never reach max_bytes", 4
    )
    iterations: Whole = number("timed runs a size", 1, 100000, "nothing would be measured", 5)
    warmup: Whole = number(
        "runs a size before the timed ones", 0, 100000, "the first timed run would pay for connecting", 1
    )
    gate_bytes: Size = size(
        "the size whose bus bandwidth is held against the floor; left out, the largest measured",
        "there would be nothing to judge",
        otherwise="the largest measured",
        default_factory=_largest,
    )
    ranks_per_node: Whole = number("processes a node", 1, 1024, "no process would measure", 1)
    time_limit_minutes: Whole = number(
        "limit of each measuring job, minutes", 1, 1440, "Slurm would end the measurement as it starts", 10
    )
    queue_limit_seconds: Whole = number(
        "how long a measurement waits for other jobs on its nodes before it takes only new nodes and a peer of each, "
        "or is BUSY; it keeps nobody out meanwhile",
        0,
        604800,
        "the measurement would wait for other jobs for ever",
        30,
    )
    floors_gb_per_s: dict[str, Annotated[Number, Field(gt=0)]] = key(
        "least bus bandwidth by scope (a site's name or `cross-site`), GB/s",
        "a mapping from a site's name or cross-site to GB/s above 0; the measurement would be held against nothing;"
        " write a number above 0, or leave the scope out to have it UNJUDGED",
        default={},
    )
    floors_from: FreeText = key(
        "where `floors_gb_per_s` come from, shown beside them; `make floors` writes it",
        "a short text; nobody would know later where the floors are from; write any text, or leave it out",
        default="",
    )
    rerun: FreeText = key(
        "change this text to measure an unchanged cluster again",
        "a short text; a change of it starts a new measurement; write any text",
        default="",
    )


def check_sizes(validation: Draft, report: Report) -> None:
    """Report sizes that cannot be measured, and a gate that is none of those measured."""

    def shown(at: str, size: int) -> str:
        return report.value(at, size) if report.hides(at) else format_size(size)

    least, most, factor = (validation.value(key) for key in ("min_bytes", "max_bytes", "factor"))
    if not isinstance(least, int) or not isinstance(most, int) or not isinstance(factor, int):
        return
    if least % 4:
        at = validation.at("min_bytes")
        what = f"{shown(at, least)} is not a multiple of 4 bytes, the size of one number"
        report.add(at, what, "no collective has a message of that size", "write a multiple of 4, such as 64K")
    if least > most:
        at = validation.at("min_bytes" if "min_bytes" in validation.raw else "max_bytes")
        what = f"min_bytes ({shown(at, least)}) is above max_bytes ({shown(at, most)})"
        report.add(at, what, "there would be no size to measure", "write a smaller min_bytes or a larger max_bytes")
        return
    measured = sizes_between(least, most, factor)
    gate, at = validation.value("gate_bytes"), validation.at("gate_bytes")
    if isinstance(gate, int) and gate not in measured:
        listed = ", ".join(shown(at, size) for size in measured)
        what = f"{shown(at, gate)} is not among the sizes measured ({listed})"
        report.add(at, what, "no result could be held against the floor", "write one of them, or leave it out")
