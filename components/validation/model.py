"""The settings of a measurement, the report of its Slurm job, and the collectives with their formulas and sizes.

Source: nccl-tests' doc/PERFORMANCE.md and `…GetBw` and `…GetCollByteCount` in src/<collective>.cu (v2.19.6). In the
table, `size` is the larger of the bytes sent and received, and `count` is a rank's own part of it.
Sizes are `512`, `64K`, `4M`, `1G`, powers of 1024. Source: `parsesize` in src/common.cu. It also accepts fractions,
which are refused here: a size must be a whole number of bytes.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from components.validation.untrusted import Name, read

_ALIGNMENT = 16  # nccl-tests rounds a rank's part down to a multiple of this, in bytes
_UNITS = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3}
_SIZE = re.compile(r"(?P<number>[0-9]{1,18})(?P<unit>[KMG]?)", re.ASCII | re.IGNORECASE)


def table(data: bytes | None) -> csv.DictReader[str]:
    """Return the rows of a table by column, from get_data."""
    return csv.DictReader((data or b"").decode().splitlines())


@dataclass(frozen=True)
class Collective:
    """The properties of one collective in nccl-tests.

    shared        whether a message is divided among the ranks
    passes        how often the ring carries it: 2 for all_reduce
    checks_all    whether in-place results are compared too
    """

    name: str
    shared: bool
    passes: int
    checks_all: bool = True

    @property
    def program(self) -> str:
        return f"{self.name}_perf"

    def factor(self, ranks: int) -> float:
        return self.passes * (ranks - 1) / ranks if self.passes else 1.0

    def elements(self, count: int, ranks: int) -> int:
        return count * ranks if self.shared else count

    def size(self, requested: int, ranks: int) -> int:
        """Return the size in bytes of the row for a requested size."""
        return requested // ranks // _ALIGNMENT * _ALIGNMENT * ranks if self.shared else requested


COLLECTIVES: Mapping[str, Collective] = {
    each.name: each
    for each in (
        Collective("all_reduce", shared=False, passes=2),
        Collective("all_gather", shared=True, passes=1),
        Collective("reduce_scatter", shared=True, passes=1),
        Collective("alltoall", shared=True, passes=1, checks_all=False),
        Collective("sendrecv", shared=False, passes=0, checks_all=False),
    )
}


def parse_size(text: str | int) -> int:
    """Return the bytes of `64K`, `4M`, `1G` or a plain number. Raises ValueError with the accepted forms."""
    match = _SIZE.fullmatch(str(text).strip())
    size = int(match["number"]) * _UNITS[match["unit"].upper()] if match else 0
    if size <= 0 or isinstance(text, bool):
        raise ValueError(
            f"{text!r} is not a message size: write a positive number of bytes,"
            " with K, M or G for powers of 1024 (64K, 4M, 1G)"
        )
    return size


def sizes_between(minimum: int, maximum: int, factor: int) -> tuple[int, ...]:
    """Return the sizes in bytes that nccl-tests measures for `-b minimum -e maximum -f factor`, smallest first."""
    if factor < 2:
        raise ValueError(f"the factor is {factor}: it must be 2 or more, else the size does not grow")
    if minimum < 1:
        raise ValueError(f"the smallest size is {minimum} bytes: it must be at least 1")
    if maximum < minimum:
        raise ValueError(f"the largest size, {maximum} bytes, is below the smallest, {minimum} bytes")
    sizes = [minimum]
    while sizes[-1] * factor <= maximum:
        sizes.append(sizes[-1] * factor)
    return tuple(sizes)


def format_size(size_bytes: int) -> str:
    """Return `65536` as `64 KiB`; a size that is not a multiple of 1024 stays in bytes."""
    for unit, scale in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size_bytes >= scale and size_bytes % scale == 0:
            return f"{size_bytes // scale} {unit}"
    return f"{size_bytes} B"


Backend = Literal["mpi-cpu", "tcp-cpu", "nccl-tests"]

_FLOAT32_BYTES = 4
_WHOLE = ("min_bytes", "max_bytes", "factor", "iterations", "warmup", "gate_bytes", "ranks", "nodes", "runs")


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The settings of one measurement: sizes in bytes, floor in 1e9 bytes per second.

    ranks, nodes     how many must take part
    runs             how often `gate_bytes` is measured: once with all sizes, then alone
    floor_gb_per_s   minimum out-of-place bus bandwidth at `gate_bytes`; None if no floor is known

    Raises ValueError if the settings cannot be measured or judged.
    """

    backend: Backend
    min_bytes: int
    max_bytes: int
    factor: int
    iterations: int
    warmup: int
    gate_bytes: int
    ranks: int
    nodes: int
    collective: str = "all_reduce"
    runs: int = 1
    floor_gb_per_s: float | None = None
    floor_source: str | None = None

    def __post_init__(self) -> None:
        if wrong := [key for key in _WHOLE if type(getattr(self, key)) is not int or getattr(self, key) > 2**63]:
            raise ValueError(f"{', '.join(wrong)} must be whole numbers of at most 2^63")
        valid = {
            "backend": self.backend in get_args(Backend),
            "collective": self.collective in COLLECTIVES,
            "min_bytes": self.min_bytes % _FLOAT32_BYTES == 0,
            "gate_bytes": self.gate_bytes in self.sizes(),
            "iterations": self.iterations >= 1,
            "warmup": self.warmup >= 0,
            "runs": self.runs >= 1,
            "nodes": self.nodes >= 1,
            "ranks": self.ranks >= max(2, self.nodes),
            "floor_gb_per_s": self.floor_gb_per_s is None or 0 < self.floor_gb_per_s < math.inf,
        }
        if wrong := [f"{key} is {getattr(self, key)!r}" for key, is_valid in valid.items() if not is_valid]:
            raise ValueError(f"this cannot be measured: {', '.join(wrong)}")

    def sizes(self) -> tuple[int, ...]:
        return sizes_between(self.min_bytes, self.max_bytes, self.factor)

    def row_bytes(self, size: int) -> int:
        """Return the size in the table's row: some collectives divide a message evenly among the ranks."""
        return COLLECTIVES[self.collective].size(size, self.ranks)

    def at_gate(self, runs: int = 1) -> Measurement:
        """Return the settings of some runs at the gate size alone."""
        return replace(self, min_bytes=self.gate_bytes, max_bytes=self.gate_bytes, runs=runs)

    def without(self, nodes: int) -> Measurement:
        """Return the settings for that many nodes fewer. Raises ValueError if too few are left."""
        return replace(self, nodes=self.nodes - nodes, ranks=self.ranks - self.ranks // self.nodes * nodes)


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """The head node's report of the Slurm job.

    state         Slurm's state (COMPLETED, FAILED, ...); without a job BUSY (other jobs on the nodes) or UNAVAILABLE (a
                  node down or drained)
    exit_code     None if Slurm has none
    nodes         nodes that Slurm allocated
    output        standard output and error together
    node_states   output of `sinfo -R`
    facts         further observations by name
    left_out      nodes of the scope that did not take part
    absent        reasons for those without another job
    measured_at   Unix time
    last          the last report that was not BUSY
    repeats       outputs of the runs at the gate size alone
    log           NCCL's log, if it has its own file
    beside        other use of the GPUs before each run and after the last one (foreign.py)
    first_runs    GB/s of the first runs, if the measurement was repeated because they differed
    """

    job_id: int | None
    state: str
    exit_code: int | None
    seconds: float | None
    nodes: tuple[Name, ...]
    output: str
    signal: int = 0
    node_states: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[Name, ...] = ()
    measured_at: float | None = None
    last: JobReport | None = None
    absent: Mapping[Name, str] = field(default_factory=dict)
    repeats: tuple[str, ...] = ()
    log: str = ""
    beside: tuple[str, ...] = ()
    first_runs: tuple[float, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> JobReport:
        """Read a report, which is untrusted output of a user. Raises ValueError that names the wrong key."""
        return read(cls, data)


NO_REPORT = JobReport(job_id=None, state="", exit_code=None, seconds=None, nodes=(), output="")
