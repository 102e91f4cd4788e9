"""Read jobs from `scontrol show job --json`, and the parts of their AdminComment. Pure. For Slurm 23.11 and later."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import Any, TypeVar

from components.node.json_part import elements
from components.node.step.values import read_values
from components.slurm_commands.nodes import number

T = TypeVar("T")
# Letters of a text in JSON that slurmdbd changes.
_ESCAPED = re.compile(r"\\u[0-9a-f]{4}|\\.|['`]")
_WAITS = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_RUNS = ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING")
# `gpu:h200:2(IDX:0-1)`, in a list of all kinds of devices on a node.
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,(]+)?:([0-9]+)\(")


@dataclass(frozen=True)
class Job:
    """A job.

    task                  index in the array `array`; None for other jobs
    het, offset           the number of its heterogeneous job, 0 for other jobs, and its place in it
    flags                 Slurm's flags, the state first: `COMPLETED`, `COMPLETING`
    reason, description   why it waits or failed: Slurm's code, and its explanation
    nodes, needs          the nodes that it has or had, and those that it requests by name, in Slurm's short form
    excluded              the nodes that it must not get, in the same form
    node_count            how many nodes it requests or has
    switches              how many sites it may span; 0 if not set
    begin, start, end     Unix seconds, 0 if unknown; begin is the earliest time at which it may start
    minutes               its time limit, 0 without one
    resources             its requested resources in total: `cpu=2,mem=4G,node=1,gres/gpu=8`
    allocated             the resources that Slurm gave it, in the same form
    switched, ran_before  when it was last suspended or resumed (Unix seconds, 0: never), and the seconds it ran before
    batch                 whether sbatch submitted it: Slurm requeues no other job
    comment               its user's comment
    admin_comment         a text that only Slurm's administrators can set; tailrack makes it a JSON object (parts_of)
    requeues              whether Slurm may requeue it
    mail_user             the receivers that its user named
    status, signal        its exit status and signal
    output, folder        the file of its output, and its working folder
    """

    number: int
    name: str
    user: str
    user_number: int
    flags: tuple[str, ...]
    array: int = 0
    task: int | None = None
    reason: str = ""
    description: str = ""
    partition: str = ""
    account: str = ""
    qos: str = ""
    nodes: str = ""
    needs: str = ""
    features: str = ""
    dependency: str = ""
    reservation: str = ""
    failed_node: str = ""
    node_count: int = 0
    switches: int = 0
    begin: int = 0
    start: int = 0
    end: int = 0
    minutes: int = 0
    restarts: int = 0
    resources: str = ""
    status: int = 0
    signal: int = 0
    output: str = ""
    allocated: str = ""
    admin_comment: str = ""
    requeues: bool = False
    mail_user: str = ""
    comment: str = ""
    het: int = 0
    offset: int = 0
    batch: bool = False
    switched: int = 0
    ran_before: int = 0
    folder: str = ""
    excluded: str = ""

    @property
    def title(self) -> str:
        """Return the text by which every command of Slurm takes this job alone: `12`, `12_3` or `12+1`.

        The last task of an array has the array's own number, and the first part of a heterogeneous job has that of the
        whole: Slurm takes such a number for all of them.
        """
        if self.task is not None:
            return f"{self.array}_{self.task}"
        return f"{self.het}+{self.offset}" if self.het else str(self.number)

    @property
    def state(self) -> str:
        """Return Slurm's state, the first flag."""
        return self.flags[0]

    @property
    def waits(self) -> bool:
        """Return whether it has not started yet."""
        return any(flag in _WAITS for flag in self.flags) and not self.runs

    @property
    def configuring(self) -> bool:
        """Return whether it has nodes that are not ready yet."""
        return not {"CONFIGURING", "POWER_UP_NODE"}.isdisjoint(self.flags)

    @property
    def runs(self) -> bool:
        """Return whether it has nodes now."""
        return any(flag in _RUNS for flag in self.flags)

    @property
    def suspended(self) -> bool:
        """Return whether an administrator or another job's priority has stopped it."""
        return "SUSPENDED" in self.flags

    def seconds(self, until: float) -> float:
        """Return how long it has run until a time, without the time in which it was suspended."""
        if not self.switched:
            return until - self.start
        return self.ran_before + (0 if self.suspended else until - self.switched)


# Slurm's keys of fields that have another name here.
_KEYS = {
    **{"user": "user_name", "user_number": "user_id", "array": "array_job_id", "het": "het_job_id"},
    **{"reason": "state_reason", "description": "state_description", "needs": "required_nodes"},
    **{"reservation": "resv_name", "switches": "required_switches", "begin": "eligible_time", "start": "start_time"},
    **{"end": "end_time", "minutes": "time_limit", "restarts": "restart_cnt", "resources": "tres_req_str"},
    **{"output": "standard_output", "offset": "het_job_offset", "switched": "suspend_time"},
    **{"ran_before": "pre_sus_time", "folder": "current_working_directory", "excluded": "excluded_nodes"},
}
_TEXTS, _NUMBERS = ([each.name for each in fields(Job) if each.type == kind] for kind in ("str", "int"))


def read_jobs(text: str) -> list[Job]:
    """Read scontrol's output. Raise ValueError for output in another format."""
    try:
        return [read_job(entry) for entry in elements(text, "jobs") if entry is not None]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError("no jobs as Slurm prints them") from error


def read_job(entry: Mapping[str, Any]) -> Job:
    """Read one entry of the list. Raise KeyError or IndexError without a number or a state."""
    flags, task, code = entry["job_state"], entry.get("array_task_id") or {}, entry.get("exit_code") or {}
    texts = {name: _text(entry, _KEYS.get(name, name)) for name in _TEXTS}
    numbers = {name: number(entry.get(_KEYS.get(name, name))) for name in _NUMBERS}
    others: dict[str, Any] = {
        "number": number(entry["job_id"]),
        "flags": (flags[0], *flags[1:]),  # raises IndexError without a state
        "task": number(task) if task.get("set") else None,
        "status": number(code.get("return_code")),
        "signal": number((code.get("signal") or {}).get("id")),
        "allocated": _allocated(entry),
        **{"requeues": entry.get("requeue") is True, "batch": entry.get("batch_flag") is True},
    }
    return Job(**{**texts, **numbers, **others})


def _allocated(entry: Mapping[str, Any]) -> str:
    """Return the allocated resources. Without accounting, Slurm counts no GPUs there, only for each node."""
    resources = _text(entry, "tres_alloc_str")
    if "gres/gpu" in resources:
        return resources
    gpus = sum(int(count) for node in entry.get("gres_detail") or () for count in _GPUS.findall(str(node)))
    return f"{resources},gres/gpu={gpus}" if gpus else resources


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key)
    return "" if value is None else str(value)


def parts_of(admin_comment: str) -> dict[str, Any]:
    """Return the JSON object in a job's AdminComment. An administrator's own text is its part `comment`."""
    # sacctmgr replaces all quotes by backticks.
    for text in (admin_comment, admin_comment.replace("`", '"')):
        with suppress(ValueError, RecursionError):
            if isinstance(parts := json.loads(text), dict):
                return parts
    return {"comment": admin_comment} if admin_comment.strip() else {}


def read_part(admin_comment: str, name: str, kind: type[T]) -> T | None:
    """Return a part of a job's AdminComment as a dataclass; None without one, or if it is malformed."""
    try:
        values = parts_of(admin_comment)[name].items()
        part: T = read_values(kind, dict(values))
    except (LookupError, ValueError, TypeError, AttributeError):
        return None
    return part


def with_parts(admin_comment: str, **parts: object) -> str:
    """Return a job's AdminComment with other parts, dataclasses or texts. None removes one. Other parts stay."""
    kept = {name: part for name, part in {**parts_of(admin_comment), **parts}.items() if part is not None}
    text = json.dumps(kept, default=asdict, separators=(",", ":"), ensure_ascii=False)
    return _ESCAPED.sub(" ", text) if kept else ""
