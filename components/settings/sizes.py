"""Keys for the sizes and runs of a measurement, and checks of the sizes."""

from typing import Any, Protocol

from components.settings.problems import Report
from components.settings.section import number, size
from components.validation.collectives import format_size, parse_size, sizes_between


def smallest_key(default: str) -> Any:
    """Return the key of the smallest message."""
    return size("smallest message", breaks="the measurement would have no first size", default=parse_size(default))


def largest_key(default: str) -> Any:
    """Return the key of the largest message."""
    return size("largest message", breaks="the measurement would have no last size", default=parse_size(default))


def factor_key() -> Any:
    """Return the key of the factor between sizes."""
    return number(
        "factor from one size to the next", 2, 1024, breaks="the sizes would never reach max_bytes", default=4
    )


def iterations_key(default: int) -> Any:
    """Return the key of the number of timed runs."""
    return number("timed runs per size", 1, 100000, breaks="nothing would be measured", default=default)


def warmup_key(default: int) -> Any:
    """Return the key of the number of warm-up runs."""
    breaks = "the first timed run would include connection setup"
    return number("warm-up runs per size", 0, 100000, breaks=breaks, default=default)


def judged_key(description: str) -> Any:
    """Return the key of the size that is compared with the floor."""
    default_text = "the largest measured"
    return size(
        description, breaks="there would be nothing to judge", default_text=default_text, default_factory=largest
    )


def largest(data: dict[str, int]) -> int:
    """Return the largest measured size."""
    if data["min_bytes"] > data["max_bytes"]:
        return data["max_bytes"]  # `check_sizes_of` reports it
    return sizes_between(data["min_bytes"], data["max_bytes"], data["factor"])[-1]


class Sizes(Protocol):
    """A section with message sizes."""

    min_bytes: int
    max_bytes: int
    factor: int
    gate_bytes: int

    @property
    def model_fields_set(self) -> set[str]: ...


def check_sizes_of(section: Sizes, report: Report) -> None:
    """Report sizes that cannot be measured, and a `gate_bytes` that is not measured."""

    def show(path: str, size: int) -> str:
        return report.value(path, size) if report.hides(path) else format_size(size)

    least, most = section.min_bytes, section.max_bytes
    if least % 4:
        path = report.at(section, "min_bytes")
        problem = f"{show(path, least)} is not a multiple of 4 bytes, the size of one number"
        report.add(path, problem, "no collective has a message of that size", "write a multiple of 4, such as 64K")
    if least > most:
        path = report.at(section, "min_bytes" if "min_bytes" in section.model_fields_set else "max_bytes")
        problem = f"min_bytes ({show(path, least)}) is above max_bytes ({show(path, most)})"
        fix = "write a smaller min_bytes or a larger max_bytes"
        report.add(path, problem, "there would be no size to measure", fix)
        return
    measured, path = sizes_between(least, most, section.factor), report.at(section, "gate_bytes")
    if section.gate_bytes not in measured:
        listed = ", ".join(show(path, size) for size in measured)
        problem = f"{show(path, section.gate_bytes)} is not among the measured sizes ({listed})"
        report.add(
            path, problem, "the floor would have no result to compare with", "write one of them, or leave it out"
        )
