"""Samples of the GPUs of one job on one node, and their summary, a part of the job's AdminComment. Pure.

The prolog and epilog (role health) write JOBS and remove from it. A job's samples are counted per GPU that Slurm gave
it, whether or not a process uses the GPU.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

from components.node.locks import PRIVATE
from components.roles.access.ssh_trust.ask import ANSWERS
from components.slurm_commands.jobs import read_part

# One file per job with GPUs on this node: its name is the job's id, its content SLURM_JOB_GPUS, as slurmd gives it.
JOBS = f"{PRIVATE}/gpu-jobs"
# One file per job: the samples so far, in JSON.
SAMPLES = f"{PRIVATE}/gpu-use"
# The GPUs without a figure of their power, once the log names them.
POWERLESS = f"{PRIVATE}/gpus-without-power"
SAMPLER = "/usr/local/lib/tailrack/gpu-use"
ANSWER = f"{ANSWERS}/gpu-use"
RECORDER = "/usr/local/lib/tailrack/job-gpu-use"
# On the head node, in JSON: the recorded text of each ended job that slurmctld may still replace.
RECORDED = f"{PRIVATE}/gpu-use-recorded"
# The limits for unused GPUs as JSON, and a line `number start` for each job that got the message.
UNUSED_GPUS = "/etc/tailrack/unused-gpus"
TOLD = f"{PRIVATE}/unused-gpus-told"
# A GPU that ran kernels in less than this share of a sample's second is idle.
IDLE_PERCENT = 5
# A GPU that waits for another rank runs a kernel that only looks at memory: at least this utilization, and at most this
# share of its power limit (job_hangs/watch.py).
WAITING_PERCENT = 95
WAITING_POWER = 0.4
# One sample a minute: a GPU that was idle in this many samples in a row counts as unused now.
UNUSED_SAMPLES = 10
QUERY: Sequence[str] = (
    "--query-gpu=index,pci.bus_id,utilization.gpu,memory.used",
    "--format=csv,noheader,nounits",
)
QUERY_WITH_POWER: Sequence[str] = (f"{QUERY[0]},power.draw,power.limit", QUERY[1])


@dataclass(frozen=True)
class Reading:
    """One GPU now: the percentage of the last second in which a kernel ran, and the used memory in MiB, 0 if unknown.

    power, limit   its power and the limit of it in watts, where QUERY_WITH_POWER was asked; 0 if unknown
    """

    index: int
    bus: str
    percent: int
    memory: int
    power: float = 0.0
    limit: float = 0.0

    @property
    def idle(self) -> bool:
        """Return whether it runs nothing."""
        return self.percent < IDLE_PERCENT

    @property
    def waits(self) -> bool:
        """Return whether it runs a kernel without work."""
        return self.percent >= WAITING_PERCENT and self.limit > 0 and self.power < WAITING_POWER * self.limit


@dataclass(frozen=True)
class GpuSamples:
    """The samples of one GPU.

    count     number of samples
    percents  sum of their percentages
    idle      number of idle samples
    idle_run  number of idle samples in a row up to the last one
    peak      most used memory, in MiB
    waits     number of samples since it worked last in which it waited for another rank
    still_run   number of samples in a row up to the last one in which it was idle or waited
    """

    count: int = 0
    percents: int = 0
    idle: int = 0
    idle_run: int = 0
    peak: int = 0
    waits: int = 0
    still_run: int = 0

    def plus(self, reading: Reading | None) -> GpuSamples:
        """Return these samples and one more. Without a reading, the GPU may be in use."""
        if reading is None:
            return replace(self, idle_run=0, waits=0, still_run=0)
        still = reading.idle or reading.waits
        return GpuSamples(
            self.count + 1,
            self.percents + reading.percent,
            self.idle + reading.idle,
            self.idle_run + 1 if reading.idle else 0,
            max(self.peak, reading.memory),
            self.waits + reading.waits if still else 0,
            self.still_run + 1 if still else 0,
        )


# A node's figure outside of this range is malformed.
_Count = Annotated[int, range(2**40)]


@dataclass(frozen=True)
class Use:
    """The use of a job's GPUs, on one node or on all its nodes.

    gpus          number of GPUs that Slurm gave it
    count, percents, idle   sums over its GPUs; see GpuSamples
    peak          most used memory of one GPU, in MiB
    unused        number of GPUs that have been idle for UNUSED_SAMPLES or more
    unused_minutes   since when all of these have been idle
    waits, still, still_minutes   the same of GPUs that wait or are idle; see GpuSamples
    """

    gpus: _Count = 0
    count: _Count = 0
    percents: _Count = 0
    idle: _Count = 0
    peak: _Count = 0
    unused: _Count = 0
    unused_minutes: _Count = 0
    waits: _Count = 0
    still: _Count = 0
    still_minutes: _Count = 0

    def plus(self, other: Use) -> Use:
        """Return the use of two sets of GPUs together."""
        minutes = [use.unused_minutes for use in (self, other) if use.unused]
        still_minutes = [use.still_minutes for use in (self, other) if use.still]
        return Use(
            self.gpus + other.gpus,
            self.count + other.count,
            self.percents + other.percents,
            self.idle + other.idle,
            max(self.peak, other.peak),
            self.unused + other.unused,
            min(minutes, default=0),
            self.waits + other.waits,
            self.still + other.still,
            min(still_minutes, default=0),
        )

    @property
    def in_hang(self) -> Use:
        """Return the use of a job that hangs: GPUs that wait are not in use."""
        percents = max(0, self.percents - 100 * self.waits)
        idle = min(self.count, self.idle + self.waits)
        return replace(self, percents=percents, idle=idle, unused=self.still, unused_minutes=self.still_minutes)


@dataclass(frozen=True)
class JobSamples:
    """The samples of a job on this node, by the number of the GPU's device file."""

    gpus: Mapping[int, GpuSamples] = field(default_factory=dict)

    def plus(self, devices: Sequence[int], readings: Mapping[int, Reading]) -> JobSamples:
        """Return these samples and one more of each of the job's GPUs. A GPU without a reading gets none."""
        gpus = {device: self.gpus.get(device, GpuSamples()) for device in devices}
        return JobSamples({device: gpu.plus(readings.get(device)) for device, gpu in gpus.items()})

    @property
    def use(self) -> Use:
        """Return the use of all its GPUs here."""
        gpus = list(self.gpus.values())
        unused = [gpu.idle_run for gpu in gpus if gpu.idle_run >= UNUSED_SAMPLES]
        still = [gpu.still_run for gpu in gpus if gpu.still_run >= UNUSED_SAMPLES]
        return Use(
            len(gpus),
            sum(gpu.count for gpu in gpus),
            sum(gpu.percents for gpu in gpus),
            sum(gpu.idle for gpu in gpus),
            max((gpu.peak for gpu in gpus), default=0),
            len(unused),
            min(unused, default=0),
            sum(gpu.waits for gpu in gpus),
            len(still),
            min(still, default=0),
        )


def read_gpus(output: str) -> list[Reading]:
    """Read nvidia-smi's answer to QUERY without GPUs that have no utilization (`[N/A]`, as in MIG mode).

    GPUs that share the machine's memory have no figure of it.
    """
    import csv

    readings = []
    for row in csv.reader(output.splitlines()):
        cells = [cell.strip() for cell in row]
        if len(cells) in (4, 6) and all(_is_number(cell) for cell in (cells[0], cells[2])):
            memory = int(cells[3]) if _is_number(cells[3]) else 0
            power = [_watts(cell) for cell in cells[4:]]
            readings.append(Reading(int(cells[0]), cells[1], min(100, int(cells[2])), memory, *power))
    return readings


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _watts(text: str) -> float:
    return float(text) if re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,3})?", text) else 0.0


CANCEL = "Cancel the job if it needs no GPU, or ask for fewer."


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
    costs: dict[str, float] = field(default_factory=dict)
    unused: int = 0
    minutes: int = 0


def summary(use: Use, gpus: int, seconds: float, costs: Mapping[str, float], *, running: bool) -> Summary:
    """Return the summary of a job that has had a number of GPUs for some seconds."""
    hours = round(gpus * max(0.0, seconds) / 3600, 2)
    rounded = {unit: round(amount, 2) for unit, amount in costs.items()}
    if not use.count:
        return Summary(running, gpus, hours, costs=rounded)
    percent, idle = round(use.percents / use.count), round(100 * use.idle / use.count)
    memory = round(use.peak / 1024, 1)
    unused, minutes = (min(use.unused, gpus), use.unused_minutes) if running else (0, 0)
    return Summary(running, gpus, hours, percent, idle, memory, rounded, unused, minutes)


def read_summary(admin_comment: str) -> Summary | None:
    """Read a job's AdminComment; None if tailrack has written no figures there."""
    return read_part(admin_comment, "use", Summary)


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
