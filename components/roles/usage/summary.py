"""The use of a job's GPUs as a line of text in Slurm's AdminComment, which only Slurm's administrators can set. Pure.

tailrack so far: gpus=2 gpu_hours=1.50 gpu_use=12% gpu_idle=80% gpu_memory=3.2GiB cost=4.10USD unused=1 for=25min
tailrack: gpus=2 gpu_hours=8.00 gpu_use=15% gpu_idle=78% gpu_memory=3.2GiB cost=21.87USD
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from components.roles.usage.samples import Use

_SO_FAR, _FINAL = "tailrack so far: ", "tailrack: "
_LINE = re.compile(
    r"tailrack(?P<running> so far)?: gpus=(?P<gpus>[0-9]{1,6}) gpu_hours=(?P<hours>[0-9]{1,9}\.[0-9]{2})"
    r"(?: gpu_use=(?P<percent>[0-9]{1,3})% gpu_idle=(?P<idle>[0-9]{1,3})% gpu_memory=(?P<memory>[0-9]{1,5}\.[0-9])GiB)?"
    r"(?: cost=(?P<cost>[0-9.A-Z,]{1,100}))?(?: unused=(?P<unused>[0-9]{1,6}) for=(?P<minutes>[0-9]{1,7})min)?"
)
_AMOUNT = re.compile(r"([0-9]{1,12}\.[0-9]{2})([A-Z]{3})")
CANCEL = "Cancel the job if it needs no GPU, or ask for fewer."
# Separates an administrator's own comment from ours.
_AFTER = "; "


@dataclass(frozen=True)
class Summary:
    """The use of a job's GPUs.

    running         whether the job had not ended yet
    gpus, hours     the GPUs that Slurm gave it, times hours
    percent, idle   mean utilization and share of idle samples, in percent; None without a sample
    memory          most used memory of one GPU, in GiB
    costs           share of the nodes' prices, by currency; empty without a price
    unused, minutes   GPUs that are unused now, and since how many minutes
    """

    running: bool
    gpus: int
    hours: float
    percent: int | None = None
    idle: int | None = None
    memory: float = 0.0
    costs: Mapping[str, float] = field(default_factory=dict)
    unused: int = 0
    minutes: int = 0

    @property
    def text(self) -> str:
        """Return the line."""
        parts = [f"gpus={self.gpus} gpu_hours={self.hours:.2f}"]
        if self.percent is not None and self.idle is not None:
            parts.append(f"gpu_use={self.percent}% gpu_idle={self.idle}% gpu_memory={self.memory:.1f}GiB")
        if self.costs:
            parts.append("cost=" + ",".join(f"{amount:.2f}{unit}" for unit, amount in sorted(self.costs.items())))
        if self.running and self.unused:
            parts.append(f"unused={self.unused} for={self.minutes}min")
        return (_SO_FAR if self.running else _FINAL) + " ".join(parts)


def summary(use: Use, gpus: int, seconds: float, costs: Mapping[str, float], *, running: bool) -> Summary:
    """Return the summary of a job that has had a number of GPUs for some seconds."""
    hours = round(gpus * max(0.0, seconds) / 3600, 2)
    if not use.count:
        return Summary(running, gpus, hours, costs=costs)
    percent, idle = round(use.percents / use.count), round(100 * use.idle / use.count)
    memory = round(use.peak / 1024, 1)
    return Summary(running, gpus, hours, percent, idle, memory, costs, min(use.unused, gpus), use.unused_minutes)


def read_summary(comment: str) -> Summary | None:
    """Read a job's AdminComment; None if tailrack has written nothing there."""
    match = _LINE.fullmatch(comment.rpartition(_AFTER)[2])
    if match is None:
        return None
    known = match["percent"] is not None
    return Summary(
        match["running"] is not None,
        int(match["gpus"]),
        float(match["hours"]),
        int(match["percent"]) if known else None,
        int(match["idle"]) if known else None,
        float(match["memory"]) if known else 0.0,
        {unit: float(amount) for amount, unit in _AMOUNT.findall(match["cost"] or "")},
        int(match["unused"] or 0),
        int(match["minutes"] or 0),
    )


def with_summary(comment: str, new: Summary) -> str:
    """Return a job's AdminComment with a new summary. An administrator's own text before it stays."""
    before, _, last = comment.rpartition(_AFTER)
    own = before if _LINE.fullmatch(last) else comment
    return f"{own}{_AFTER}{new.text}" if own else new.text


def sentence(held: Summary) -> str:
    """Return the figures for people, and what to do about unused GPUs."""
    gpus = "1 GPU" if held.gpus == 1 else f"{held.gpus} GPUs"
    parts = [f"{held.hours:,.2f} GPU hours"]
    if held.percent is not None:
        parts.append(f"{held.percent} % mean utilization, idle {held.idle} %, {held.memory:.1f} GiB peak memory")
    parts += [f"{amount:,.2f} {unit}" for unit, amount in sorted(held.costs.items())]
    figures = f"{'It has had' if held.running else 'It had'} {gpus}: {', '.join(parts)}."
    return f"{figures} {idle_for(held)} {CANCEL}" if held.running and held.unused else figures


def idle_for(held: Summary) -> str:
    """Return a sentence on the unused GPUs of a running job."""
    which = "Its GPU has" if held.gpus == 1 else f"{held.unused} of its {held.gpus} GPUs have"
    return f"{which} been idle for {held.minutes} min."
