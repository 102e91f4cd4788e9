"""A job as `scontrol show job --json` has it. Pure; releases from 22.05 on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from components.validation.json_part import first_object
from components.validation.slurm_nodes import number

_WAITS = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD")
_RUNS = ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED", "STAGE_OUT", "SIGNALING")


@dataclass(frozen=True)
class Job:
    """A job.

    task                  of an array, None for other jobs; then `array` is the array's number
    flags                 Slurm's words, the state first: `COMPLETED`, `COMPLETING`
    reason, description   why it waits or has failed: Slurm's word, and what it adds to it
    nodes, needs          those that it has or had, and those that it asks for by name, in Slurm's short form
    node_count            how many it asks for, or has
    switches              how many sites it may span, 0 where nobody said
    begin, start, end     Unix seconds, 0 where unknown; begin is the earliest that it may start
    minutes               its time limit, 0 without one
    asked                 what it asks for in all: `cpu=2,mem=4G,node=1,gres/gpu=8`
    status, signal        of its exit
    output                the file that it writes to
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
    asked: str = ""
    status: int = 0
    signal: int = 0
    output: str = ""

    @property
    def title(self) -> str:
        """`12`, or `12_3` for a task of an array."""
        return str(self.number) if self.task is None else f"{self.array}_{self.task}"

    @property
    def state(self) -> str:
        """Slurm's first word for its state."""
        return self.flags[0]

    @property
    def waits(self) -> bool:
        """Whether it has yet to begin."""
        return any(flag in _WAITS for flag in self.flags) and not self.runs

    @property
    def runs(self) -> bool:
        """Whether it has nodes now."""
        return any(flag in _RUNS for flag in self.flags)


def read_jobs(text: str) -> list[Job]:
    """Read what scontrol printed. Raises ValueError for what is not of its form."""
    try:
        whole, complete = first_object(text, lambda each: isinstance(each.get("jobs"), list))
        if not complete:
            raise KeyError("jobs")
        return [_job(each) for each in whole["jobs"] if each is not None]
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise ValueError("no jobs as Slurm prints them") from error


def _job(told: Mapping[str, Any]) -> Job:
    state = told["job_state"]
    flags = tuple(state if isinstance(state, list) else str(state).split("+"))
    task = told.get("array_task_id")
    is_task = bool(task.get("set")) if isinstance(task, Mapping) else task is not None
    return Job(
        number(told["job_id"]),
        _text(told, "name"),
        _text(told, "user_name"),
        number(told.get("user_id")),
        (flags[0], *flags[1:]),  # one at least
        array=number(told.get("array_job_id")),
        task=number(task) if is_task else None,
        reason=_text(told, "state_reason"),
        description=_text(told, "state_description"),
        partition=_text(told, "partition"),
        account=_text(told, "account"),
        qos=_text(told, "qos"),
        nodes=_text(told, "nodes"),
        needs=_text(told, "required_nodes"),
        features=_text(told, "features"),
        dependency=_text(told, "dependency"),
        reservation=_text(told, "resv_name"),
        failed_node=_text(told, "failed_node"),
        node_count=number(told.get("node_count")),
        switches=number(told.get("required_switches")),
        begin=number(told.get("eligible_time")),
        start=number(told.get("start_time")),
        end=number(told.get("end_time")),
        minutes=number(told.get("time_limit")),
        restarts=number(told.get("restart_cnt")),
        asked=_text(told, "tres_req_str"),
        status=_exit(told, "return_code"),
        signal=_exit(told, "signal"),
        output=_text(told, "standard_output"),
    )


def _text(told: Mapping[str, Any], key: str) -> str:
    value = told.get(key)
    return "" if value is None else str(value)


def _exit(told: Mapping[str, Any], part: str) -> int:
    """A part of an exit: an object since 23.02, and before that one number, as wait(2) has it."""
    code = told.get("exit_code")
    if not isinstance(code, Mapping):
        whole = number(code)
        return whole >> 8 if part == "return_code" else whole & 0x7F
    value = code.get(part)
    if isinstance(value, Mapping) and "id" in value:
        value = value["id"]
    elif isinstance(value, Mapping) and "signal_id" in value:
        value = value["signal_id"]
    return number(value)
