"""What was asked of the measurement, and what the job reported back."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from components.validation.collectives import COLLECTIVES
from components.validation.sizes import sizes_between

Backend = Literal["mpi-cpu", "tcp-cpu", "nccl-tests"]

_FLOAT32_BYTES = 4
_LARGEST = 2**63  # of a setting; sizes beyond it are nobody's
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_LATEST = 253_402_300_799  # the last second of the year 9999, and of a calendar


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The settings of one measurement. Sizes in bytes, `floor_gb_per_s` in 1e9 bytes a second.

    `ranks` and `nodes` are how many must take part; `runs` how often `gate_bytes` is measured, once with all sizes
    and then alone. `floor_gb_per_s` is the least acceptable out-of-place bus bandwidth at `gate_bytes`; None where no
    floor is known for the hardware; `floor_source` says where it comes from. Raises ValueError on settings that
    could not be measured or judged.
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
                raise ValueError(f"{key} is no whole number up to 2^63")
        if self.backend not in get_args(Backend):
            raise ValueError(f"backend is {self.backend!r}: it must be one of {', '.join(get_args(Backend))}")
        if self.min_bytes % _FLOAT32_BYTES:
            raise ValueError(f"min_bytes is {self.min_bytes}: it must be a multiple of 4, the size of one float32")
        if self.gate_bytes not in self.sizes():
            raise ValueError(
                f"gate_bytes is {self.gate_bytes}, which is never measured: it must be one of {list(self.sizes())}"
            )
        if self.collective not in COLLECTIVES:
            raise ValueError(f"collective is {self.collective!r}: it must be one of {', '.join(COLLECTIVES)}")
        if self.runs < 1:
            raise ValueError(f"runs is {self.runs}: at least 1 must be made")
        if self.iterations < 1:
            raise ValueError(f"iterations is {self.iterations}: at least 1 must be timed")
        if self.warmup < 0:
            raise ValueError(f"warmup is {self.warmup}: it cannot be negative")
        if self.nodes < 1:
            raise ValueError(f"nodes is {self.nodes}: at least 1 must take part")
        if self.ranks < 2 or self.ranks < self.nodes:
            raise ValueError(
                f"ranks is {self.ranks} on {self.nodes} node(s): bus bandwidth needs at least 2 ranks, and one a node"
            )
        floor = self.floor_gb_per_s
        if floor is not None and not (math.isfinite(floor) and floor > 0):
            raise ValueError(f"floor_gb_per_s is {floor}: it must be above 0, or left out where none is known")

    def sizes(self) -> tuple[int, ...]:
        """Every size in bytes that is asked for."""
        return sizes_between(self.min_bytes, self.max_bytes, self.factor)

    def row_bytes(self, size: int) -> int:
        """The size of the row in the table for a size that is asked for: ranks share some messages in equal parts."""
        return COLLECTIVES[self.collective].size(size, self.ranks)

    def without(self, nodes: int) -> "Measurement":
        """The same with that many nodes fewer. Raises ValueError where too few would be left."""
        return replace(self, nodes=self.nodes - nodes, ranks=self.ranks - self.ranks // self.nodes * nodes)


@dataclass(frozen=True, kw_only=True)
class JobReport:
    """What the head node reported of the Slurm job.

    `state` is Slurm's word (COMPLETED, FAILED, ...), or BUSY (other jobs were on the nodes) or UNAVAILABLE (a node
    was down or drained) where no job was submitted; `seconds` the job's elapsed time; `nodes` the names Slurm
    gave it; `output` standard output and error together. `exit_code` and `signal` are None where Slurm knows
    none. `node_states` is the text of `sinfo -R`. `facts` are further named findings (nvidia_peermem, links).
    `left_out` names nodes of the scope that did not take part; `absent` says of those that no other job was on why.
    `measured_at` is when, in seconds since 1970; `last` what was found the last time that was not BUSY. `repeats` are
    outputs of further runs at the gate size alone, `log` is NCCL's own where it has a file of its own. `beside` says
    what else was on the GPUs before each run and after the last (foreign.py); `first_runs` are GB/s of runs that
    differed so much that all was measured once more.
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
        """A report from the remote script's JSON object.

        `job_id` is a number or digits; `exit_code` a number or Slurm's `code:signal`; both may be null, and
        so may `seconds`. What comes after `output` may be absent. Raises ValueError naming the key that is wrong.
        """
        if not isinstance(data, Mapping):
            raise ValueError(f"the job report is a {type(data).__name__}: a JSON object was expected")
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
            first_runs=tuple(number("first_runs", each) for each in data.get("first_runs", ())),
        )


def _job_id(value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 20:
        return int(value)
    raise ValueError(f"job_id is {value!r}: a number, its digits or null was expected")


def _exit(value: object) -> tuple[int | None, int | None]:
    if value is None:
        return None, None
    if isinstance(value, int) and not isinstance(value, bool):
        return value, 0
    code, _, signal = value.partition(":") if isinstance(value, str) else ("", "", "")
    try:
        return int(code), int(signal or 0)
    except ValueError:
        raise ValueError(f"exit_code is {value!r}: a number, Slurm's code:signal or null was expected") from None


def _seconds(key: str, value: object) -> float | None:
    if value is None:
        return None
    return number(key, value)


def number(key: str, value: object) -> float:
    """A number of a report; ValueError, by its key, for what is none or below 0."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _LATEST:
        return float(value)
    raise ValueError(f"{key} is not a number of 0 or more, or null, as was expected")


def names(key: str, value: object) -> tuple[str, ...]:
    """Names of nodes in a report; ValueError, by its key, for anything else: they are shown as they are."""
    if isinstance(value, (list, tuple)) and all(isinstance(name, str) and _NAME.fullmatch(name) for name in value):
        return tuple(value)
    raise ValueError(f"{key} is not a list of node names, as was expected")


def _text(data: Mapping[str, Any], key: str) -> str:
    if isinstance(data[key], str):
        return str(data[key])
    raise ValueError(f"{key} is {data[key]!r}: text was expected")


def _outputs(value: object) -> tuple[str, ...]:
    if isinstance(value, (list, tuple)) and all(isinstance(text, str) for text in value):
        return tuple(value)
    raise ValueError(f"repeats is {value!r}: a list of texts was expected")


def _texts(key: str, value: object) -> dict[str, str]:
    if isinstance(value, Mapping) and all(isinstance(text, str) for pair in value.items() for text in pair):
        return dict(value)
    raise ValueError(f"{key} is {value!r}: an object of text by name was expected")
