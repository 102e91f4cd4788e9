"""The settings of a measurement, and the report of its Slurm job."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from components.validation.collectives import COLLECTIVES, sizes_between

Backend = Literal["mpi-cpu", "tcp-cpu", "nccl-tests"]

_FLOAT32_BYTES = 4
_LARGEST = 2**63  # larger settings make no sense
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_LATEST = 253_402_300_799  # the last second of the year 9999


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
        for key in ("min_bytes", "max_bytes", "factor", "iterations", "warmup", "gate_bytes", "ranks", "nodes", "runs"):
            if type(value := getattr(self, key)) is not int or value > _LARGEST:
                raise ValueError(f"{key} must be a whole number of at most 2^63")
        if self.backend not in get_args(Backend):
            raise ValueError(f"backend is {self.backend!r}: it must be one of {', '.join(get_args(Backend))}")
        if self.min_bytes % _FLOAT32_BYTES:
            raise ValueError(f"min_bytes is {self.min_bytes}: it must be a multiple of 4, the size of one float32")
        if self.gate_bytes not in self.sizes():
            raise ValueError(
                f"gate_bytes is {self.gate_bytes}, which is not measured: it must be one of {list(self.sizes())}"
            )
        if self.collective not in COLLECTIVES:
            raise ValueError(f"collective is {self.collective!r}: it must be one of {', '.join(COLLECTIVES)}")
        if self.runs < 1:
            raise ValueError(f"runs is {self.runs}: it must be at least 1")
        if self.iterations < 1:
            raise ValueError(f"iterations is {self.iterations}: it must be at least 1")
        if self.warmup < 0:
            raise ValueError(f"warmup is {self.warmup}: it cannot be negative")
        if self.nodes < 1:
            raise ValueError(f"nodes is {self.nodes}: it must be at least 1")
        if self.ranks < 2 or self.ranks < self.nodes:
            raise ValueError(
                f"ranks is {self.ranks} on {self.nodes} node(s): bus bandwidth needs at least 2 ranks, and 1 per node"
            )
        floor = self.floor_gb_per_s
        if floor is not None and not (math.isfinite(floor) and floor > 0):
            raise ValueError(f"floor_gb_per_s is {floor}: it must be above 0; leave it out if no floor is known")

    def sizes(self) -> tuple[int, ...]:
        return sizes_between(self.min_bytes, self.max_bytes, self.factor)

    def row_bytes(self, size: int) -> int:
        """Return the size in the table's row: some collectives divide a message evenly among the ranks."""
        return COLLECTIVES[self.collective].size(size, self.ranks)

    def without(self, nodes: int) -> "Measurement":
        """Return the settings for that many nodes fewer. Raises ValueError if too few are left."""
        return replace(self, nodes=self.nodes - nodes, ranks=self.ranks - self.ranks // self.nodes * nodes)


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """The head node's report of the Slurm job.

    state         Slurm's state (COMPLETED, FAILED, ...); without a job BUSY (other jobs on the nodes) or UNAVAILABLE (a
                  node down or drained)
    exit_code, signal   None if Slurm has none
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
    signal: int | None
    seconds: float | None
    nodes: tuple[str, ...]
    output: str
    node_states: str = ""
    facts: Mapping[str, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    measured_at: float | None = None
    last: "JobReport | None" = None
    absent: Mapping[str, str] = field(default_factory=dict)
    repeats: tuple[str, ...] = ()
    log: str = ""
    beside: tuple[str, ...] = ()
    first_runs: tuple[float, ...] = ()

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "JobReport":
        """Read a report from the remote script's JSON object. Raises ValueError that names the wrong key.

        `job_id` is a number or digits, `exit_code` a number or `code:signal`; both and `seconds` may be null. The keys
        after `output` are optional.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"the job report is a {type(data).__name__}; it must be a JSON object")
        for key in ("job_id", "state", "exit_code", "seconds", "nodes", "output"):
            if key not in data:
                raise ValueError(f"the job report has no {key!r}; it has {sorted(data)}")
        exit_code, signal = _exit(data["exit_code"])
        absent = _texts("absent", data.get("absent", {}))
        return cls(
            job_id=_job_id(data["job_id"]),
            # Slurm writes "CANCELLED by 1000": the first word is the state.
            state=(_text(data, "state").split() or [""])[0].rstrip("+").upper(),
            exit_code=exit_code,
            signal=signal,
            seconds=_seconds("seconds", data["seconds"]),
            nodes=names("nodes", data["nodes"]),
            output=_text(data, "output"),
            node_states=_text(data, "node_states") if "node_states" in data else "",
            facts=_texts("facts", data.get("facts", {})),
            left_out=names("left_out", data.get("left_out", ())),
            measured_at=_seconds("measured_at", data.get("measured_at")),
            last=None if data.get("last") is None else cls.from_json({**data["last"], "last": None}),
            absent=dict(zip(names("absent", [*absent]), absent.values(), strict=True)),
            repeats=_outputs(data.get("repeats", ())),
            log=_text(data, "log") if "log" in data else "",
            beside=_outputs(data.get("beside", ())),
            first_runs=tuple(number("first_runs", value) for value in data.get("first_runs", ())),
        )


def _job_id(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    raise ValueError(f"job_id is {value!r}; it must be a number, its digits or null")


def _exit(value: object) -> tuple[int | None, int | None]:
    if value is None:
        return None, None
    if isinstance(value, int) and not isinstance(value, bool):
        return value, 0
    code, _, signal = value.partition(":") if isinstance(value, str) else ("", "", "")
    try:
        return int(code), int(signal or 0)
    except ValueError:
        raise ValueError(f"exit_code is {value!r}; it must be a number, Slurm's code:signal or null") from None


def _seconds(key: str, value: object) -> float | None:
    if value is None:
        return None
    return number(key, value)


def number(key: str, value: object) -> float:
    """Return a number from a report; its key is for the ValueError."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _LATEST:
        return float(value)
    raise ValueError(f"{key} must be a number of 0 or more, or null")


def names(key: str, value: object) -> tuple[str, ...]:
    """Return node names from a report, which are shown unquoted. Raises ValueError for anything else."""
    if isinstance(value, (list, tuple)) and all(isinstance(name, str) and _NAME.fullmatch(name) for name in value):
        return tuple(value)
    raise ValueError(f"{key} must be a list of node names")


def _text(data: Mapping[str, Any], key: str) -> str:
    if isinstance(data[key], str):
        return str(data[key])
    raise ValueError(f"{key} is {data[key]!r}; it must be text")


def _outputs(value: object) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise ValueError(f"repeats is {value!r}; it must be a list of texts")


def _texts(key: str, value: object) -> dict[str, str]:
    if isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair):
        return dict(value)
    raise ValueError(f"{key} is {value!r}; it must be an object with texts as values")
