"""Compare a node's readings with each other, the cluster's GPUs of the kind, earlier figures and kinds.csv. Pure.

Only a clear fault is an error: a third of the neighbours' or of its own earlier figure, or a failed or pending row
remap. All else is a warning. A figure that was not measured is not compared.

A row of kinds.csv has the datasheet's figures (host: one direction; matrix: bf16 without sparsity, fp16 for V100) and
the share of each that a healthy GPU reaches at least. Measured: an H200 copies at 0.88 of its link and of its memory's
bandwidth, and multiplies at 0.73 to 0.77. The other shares are estimates, low because a power limit holds small cards
down.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pkgutil import get_data
from statistics import median

from components.validation.model import table
from components.validation.preflight.findings import Finding, finding, unjudged
from components.validation.preflight.gpu_health import Reading

CHECK = "GPU speed"
# Parts of the compared figure: below `CLEAR` it is an error, below `SLOW` a warning; of the table, below `OF_KIND`.
CLEAR, SLOW, OF_KIND = 1 / 3, 0.7, 0.6
_LEAST_POWER = 0.9
# GB/s that no PCIe link of generation 6 exceeds.
_MOST_OF_PCIE = 121
_LEAST_OF_CLUSTER = 2
_RESET = "drain the node, then 'nvidia-smi --gpu-reset -i {bus}' on it, or restart it"
_HOST = (
    "check the card's seat, riser and slot ('lspci -vv' on the node: LnkSta); if the machine is rented, ask for another"
)


@dataclass(frozen=True)
class Figure:
    """A measured figure: its name in Reading, a phrase for it, its unit, and a remedy."""

    name: str
    phrase: str
    unit: str
    remedy: str


FIGURES = (
    Figure("host_to_gpu", "from the host", "GB/s", _HOST),
    Figure("gpu_to_host", "to the host", "GB/s", _HOST),
    Figure(
        "memory", "in its memory", "GB/s", "see 'nvidia-smi -q -d ECC,ROW_REMAPPER,CLOCK' on the node; replace the GPU"
    ),
    Figure(
        "matrix",
        "with matrices",
        "TFLOP/s",
        "see 'nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE' on the node: cooling, power",
    ),
)


def judged(
    readings: Sequence[Reading],
    *,
    cluster: Sequence[Reading] = (),
    first: Mapping[str, Reading] | None = None,
    last: Mapping[str, Reading] | None = None,
) -> list[Finding]:
    """Return the findings about the GPUs of a node.

    cluster   the last readings of the other nodes
    first     the first reading of each GPU, by `key`
    last      the reading of each GPU at the last check, by `key`
    """
    items: list[tuple[Reading, Finding]] = []
    for reading in readings:
        near = like(reading, readings)
        far = [other for other in cluster if other.name == reading.name]
        slow = list(_speed(reading, near, far, (first or {}).get(key(reading))))
        about = [
            *slow,
            *_link(reading, near, slow),
            *_memory_errors(reading, near, (last or {}).get(key(reading))),
            *_clocks(reading, near),
            *(unjudged(CHECK, doubt) for doubt in reading.doubts),
        ]
        items += [(reading, item) for item in about]
    return _joined(items)


def lowest(readings: Sequence[Reading]) -> str:
    """Return the lowest of each figure, such as `55.3 GB/s from the host, ...`; empty if nothing was measured."""
    return ", ".join(
        f"{_shown(min(values), figure)} {figure.phrase}"
        for figure in FIGURES
        if (values := measured(readings, figure.name))
    )


def key(reading: Reading) -> str:
    """Return what identifies a GPU: the card's own number, else its place."""
    return reading.uuid or reading.bus


def _joined(items: Sequence[tuple[Reading, Finding]]) -> list[Finding]:
    """Return the findings with the GPUs' names; the same one of several GPUs once."""
    groups: dict[tuple[str, str, str], list[Reading]] = {}
    for reading, item in items:
        groups.setdefault((item["severity"], item["seen"], item["remedy"]), []).append(reading)
    return [
        finding(severity, CHECK, _named(readings, seen), remedy.format(bus=readings[0].bus))
        for (severity, seen, remedy), readings in groups.items()
    ]


def _named(readings: Sequence[Reading], seen: str) -> str:
    mark, text = ("UNJUDGED: ", seen.removeprefix("UNJUDGED: ")) if seen.startswith("UNJUDGED: ") else ("", seen)
    if len(readings) == 1:
        return f"{mark}{readings[0].title}: {text}"
    names = ", ".join(reading.bus if reading.minor is None else str(reading.minor) for reading in readings)
    return f"{mark}GPUs {names}: {text}"


def _speed(
    reading: Reading, near: Sequence[Reading], far: Sequence[Reading], first: Reading | None
) -> Iterator[Finding]:
    """Yield slow figures. One direction to the host is enough: both use the same link."""
    kind, slow_link = kind_of(reading.name), False
    for figure in FIGURES:
        if figure.remedy == _HOST and slow_link:
            continue
        if item := _compared(reading, figure, near, far, first, kind):
            slow_link = slow_link or figure.remedy == _HOST
            yield item


def _compared(
    reading: Reading, figure: Figure, near: Sequence[Reading], far: Sequence[Reading], first: Reading | None,
    kind: Kind | None,
) -> Finding | None:  # fmt: skip
    value = getattr(reading, figure.name)
    if value is None:
        return None
    neighbours, others = measured(near, figure.name), measured(far, figure.name)
    references: list[tuple[float, float, str]] = []
    if neighbours:
        typical = median(neighbours)
        have = "its neighbour has" if len(neighbours) == 1 else "its neighbours have"
        link = _link_words(near) if figure.remedy == _HOST else ""
        references.append((typical, CLEAR, f"{have} {_shown(typical, figure)}{link}"))
    if first is not None and (earlier := getattr(first, figure.name)) is not None:
        references.append((earlier, CLEAR, f"became slow: it had {_shown(earlier, figure)} when it was first measured"))
    if len(others) >= _LEAST_OF_CLUSTER:
        typical = median(others)
        references.append((typical, 0, f"the cluster's other {_title(reading, kind)} have {_shown(typical, figure)}"))
    slow = [reference for reference in references if value < SLOW * reference[0]]
    if kind is not None and not slow:
        healthy = getattr(kind, "host" if figure.remedy == _HOST else figure.name)
        if value < OF_KIND * healthy:
            slow.append((healthy, 0, f"a healthy {kind.title} has about {_shown(healthy, figure)}"))
    if not slow:
        return None
    # A clear fault comes first.
    reference, clear, comparison = min(slow, key=lambda item: value >= item[1] * item[0])
    link = _link_words([reading]) if figure.remedy == _HOST else ""
    reasons = f", with clocks reduced by {', '.join(reading.throttled)}" if reading.throttled else ""
    seen = f"{_shown(value, figure)} {figure.phrase}{link}{reasons if figure.name == 'matrix' else ''}; {comparison}"
    return finding("error" if value < clear * reference else "warning", CHECK, seen, figure.remedy)


def _title(reading: Reading, kind: Kind | None) -> str:
    return kind.title if kind else reading.name


def like(reading: Reading, readings: Sequence[Reading]) -> list[Reading]:
    """Return the readings of the other GPUs of the same product."""
    return [other for other in readings if other is not reading and other.name == reading.name]


def measured(readings: Sequence[Reading], name: str) -> list[float]:
    """Return a figure of some GPUs, as far as it was measured."""
    return [value for reading in readings if (value := getattr(reading, name)) is not None]


def _shown(value: float, figure: Figure) -> str:
    return f"{value:.0f} {figure.unit}" if value >= 100 else f"{value:.1f} {figure.unit}"


def _link_words(readings: Sequence[Reading]) -> str:
    """Return the link that most of these GPUs have, such as ` over PCIe 5 x16`; empty if it is unknown."""
    links = [(reading.gen, reading.width) for reading in readings if reading.width and _uses_pcie(reading)]
    if not links:
        return ""
    gen, width = max(links, key=links.count)
    return f" over PCIe{f' {gen}' if gen else ''} x{width}"


def _uses_pcie(reading: Reading) -> bool:
    """Return whether the GPU reaches the host over PCIe. A GH200 has a faster link instead."""
    kind = kind_of(reading.name)
    return kind is None or kind.host < _MOST_OF_PCIE


def _link(reading: Reading, near: Sequence[Reading], slow: Sequence[Finding]) -> Iterator[Finding]:
    """Check the width of a link that is not named yet. At idle only its generation is lower."""
    widths = [other.width for other in near if other.width]
    if not reading.width or not widths or any("over PCIe" in item["seen"] for item in slow):
        return
    typical = int(median(widths))
    if reading.width < typical:
        have = "its neighbour has" if len(widths) == 1 else "its neighbours have"
        load = "" if reading.loaded else " (at idle)"
        yield finding("warning", CHECK, f"PCIe x{reading.width}{load}; {have} x{typical}", _HOST)


def _memory_errors(reading: Reading, near: Sequence[Reading], last: Reading | None) -> Iterator[Finding]:
    if reading.remap_failed:
        yield finding("error", CHECK, "a row remap failed", "replace the GPU")
    if reading.remap_pending:
        yield finding("error", CHECK, "a row remap is pending", _RESET)
    if last is not None:
        for name, noun in (
            ("uncorrectable", "memory errors that ECC could not correct"),
            ("remapped", "remapped rows of its memory"),
        ):
            before, now = getattr(last, name), getattr(reading, name)
            if now > before:
                seen = f"{now} {noun}, {before} at the last check"
                yield finding("warning", CHECK, seen, "replace the GPU if the number grows")
    if reading.ecc is False and any(other.ecc for other in near):
        seen = "ECC is off; its neighbours have it on"
        yield finding("warning", CHECK, seen, "run 'nvidia-smi -i {bus} -e 1' and restart")


def _clocks(reading: Reading, near: Sequence[Reading]) -> Iterator[Finding]:
    limits = measured(near, "power_limit")
    if reading.power_limit is not None:
        typical = median(limits) if limits else None
        remedy = "see 'nvidia-smi -q -d POWER'; 'nvidia-smi -i {bus} -pl WATTS' changes it"
        if typical is not None and reading.power_limit < _LEAST_POWER * typical:
            seen = f"its power limit is {reading.power_limit:.0f} W; its neighbours have {typical:.0f} W"
            yield finding("warning", CHECK, seen, remedy)
        elif reading.default_power_limit and reading.power_limit < _LEAST_POWER * reading.default_power_limit:
            seen = f"its power limit is {reading.power_limit:.0f} W of {reading.default_power_limit:.0f} W"
            yield finding("warning", CHECK, seen, remedy)
    if reading.throttled:
        load = " under load" if reading.loaded else ""
        seen = f"clocks are reduced{load} by {', '.join(reading.throttled)}"
        yield finding("warning", CHECK, seen, "check the node's cooling and power supply")


@dataclass(frozen=True)
class Kind:
    """Figures of a healthy GPU: GB/s to and from the host and in its memory, TFLOP/s."""

    title: str
    host: float
    memory: float
    matrix: float


def kind_of(name: str) -> Kind | None:
    """Return the kind of a product name; None if the table does not have it."""
    return _kinds().get(name)


@cache
def _kinds() -> Mapping[str, Kind]:
    return {
        row["name"]: Kind(
            row["title"],
            float(row["host_gb_per_s"]) * float(row["host_share"]),
            float(row["memory_gb_per_s"]) * float(row["memory_share"]),
            float(row["matrix_tflops"]) * float(row["matrix_share"]),
        )
        for row in table(get_data("components.validation.gpu_speed", "kinds.csv"))
    }
