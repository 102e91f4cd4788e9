"""The keys of a measurement's sizes and runs, and what the sizes must be to one another."""

from typing import Any

from components.settings.draft import Draft
from components.settings.problems import Report
from components.settings.section import number, size
from components.validation.sizes import format_size, parse_size, sizes_between


def smallest_key(default: str) -> Any:
    """The key of the smallest message."""
    return size("smallest message", breaks="the measurement would have no first size", default=parse_size(default))


def largest_key(default: str) -> Any:
    """The key of the largest message."""
    return size("largest message", breaks="the measurement would have no last size", default=parse_size(default))


def factor_key() -> Any:
    """The key of the step from a size to the next."""
    return number(
        "each size is the one before times this", 2, 1024, breaks="the sizes would never reach max_bytes", default=4
    )


def iterations_key(default: int) -> Any:
    """The key of the number of timed runs."""
    return number("timed runs a size", 1, 100000, breaks="nothing would be measured", default=default)


def warmup_key(default: int) -> Any:
    """The key of the number of runs before those."""
    breaks = "the first timed run would pay for connecting"
    return number("runs a size before the timed ones", 0, 100000, breaks=breaks, default=default)


def judged_key(description: str) -> Any:
    """The key of the size that is judged."""
    otherwise = "the largest measured"
    return size(description, breaks="there would be nothing to judge", otherwise=otherwise, default_factory=largest)


def largest(data: dict[str, int]) -> int:
    """The largest size that is measured."""
    return sizes_between(data["min_bytes"], data["max_bytes"], data["factor"])[-1]


def check_sizes_of(section: Draft, report: Report) -> None:
    """Report sizes that cannot be measured, and a gate that is none of those measured."""

    def shown(at: str, size: int) -> str:
        return report.value(at, size) if report.hides(at) else format_size(size)

    least, most, factor = (section.value(key) for key in ("min_bytes", "max_bytes", "factor"))
    if not isinstance(least, int) or not isinstance(most, int) or not isinstance(factor, int):
        return
    if least % 4:
        at = section.at("min_bytes")
        what = f"{shown(at, least)} is not a multiple of 4 bytes, the size of one number"
        report.add(at, what, "no collective has a message of that size", "write a multiple of 4, such as 64K")
    if least > most:
        at = section.at("min_bytes" if "min_bytes" in section.raw else "max_bytes")
        what = f"min_bytes ({shown(at, least)}) is above max_bytes ({shown(at, most)})"
        report.add(at, what, "there would be no size to measure", "write a smaller min_bytes or a larger max_bytes")
        return
    measured = sizes_between(least, most, factor)
    gate, at = section.value("gate_bytes"), section.at("gate_bytes")
    if isinstance(gate, int) and gate not in measured:
        listed = ", ".join(shown(at, size) for size in measured)
        what = f"{shown(at, gate)} is not among the sizes measured ({listed})"
        report.add(at, what, "no result could be held against the floor", "write one of them, or leave it out")
