"""Submit one measurement through Slurm as a plain user, wait for it, and return its output.

Other code judges the output: a failed job is a result too, and so are nodes that run other jobs.
"""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from components.measurement_jobs.node_states import (
    BUSY,
    DRAINED,
    IDLE,
    OUT,
    Member,
    Node,
    States,
    absent,
    any_idle,
    jobs,
    new_and_peers,
    unreachable,
)
from components.node import files
from components.node.failure import Failure
from components.node.locks import Lock
from components.node.log import note
from components.node.step.step import STATE_DIR, Step
from components.node.waiting import wait_until
from components.slurm_commands import slurm
from components.validation.slurm_jobs import NO_JOB, REASON_SECONDS, REFUSED, run_as_submitter

# <scope>.json is this step's last result, <scope>.last.json the one before it, without BUSY.
_KEPT = f"{STATE_DIR}/validation"
# Bytes of a stored result: those of a report (components/validation/slurm_jobs.py), and the text that this step adds.
_MOST_KEPT = 80_000_000
# Seconds for slurmctld to report its nodes: it may restart, or hang until its watchdog restarts it.
_ANSWER_SECONDS = 120
# Seconds of a step beside its limits.
MARGIN_SECONDS = 360


@dataclass(frozen=True)
class ValidateValues:
    """The measurements to make.

    scope        name of the measurement (a site, or cross-site)
    settings     digest of the settings: a change measures all nodes again
    run_as       the user who submits
    plan         plan of the measurement (components/measurement_jobs/plan.py), as JSON
    driver       command line of the program that submits the jobs and reads their output (components/validation)
    queue_limit, run_limit, measurement_limit   seconds to wait for the nodes, for one job, and for all jobs
    """

    scope: str
    members: list[Member]
    settings: str
    run_as: str
    plan: str
    driver: str
    queue_limit: int
    run_limit: int
    measurement_limit: int

    @property
    def result_file(self) -> str:
        return f"{_KEPT}/{self.scope}.json"

    @cached_property
    def parsed_plan(self) -> Any:
        """Return the plan's object."""
        return json.loads(self.plan)

    @property
    def any_nodes(self) -> int | None:
        """Return how many nodes to measure, whichever are idle; 0 for all of them, None for the listed nodes."""
        most: int | None = self.parsed_plan.get("any_nodes")
        # All nodes of a small scope are listed nodes, of which new ones can be measured apart.
        return None if most is not None and most >= len(self.members) else most

    @property
    def last_file(self) -> str:
        return f"{_KEPT}/{self.scope}.last.json"


def recall(step: Step, values: ValidateValues) -> None:
    """Return the stored result again; measure if no result exists, as after BUSY."""
    _wait_for_this_measurement(step, values)
    if kept := _kept(values.result_file):
        step.results |= kept
    else:
        _up(step, values)


def up(step: Step, values: ValidateValues) -> None:
    """Measure."""
    _wait_for_this_measurement(step, values)
    _up(step, values)


def _up(step: Step, values: ValidateValues) -> None:
    _wait_for_other_measurements(step, values)
    files.make_folder(_KEPT, 0o700)
    # From now on an old measurement is not this step's result.
    if files.exists(values.result_file):
        files.rename(values.result_file, values.last_file)
    last = _kept(values.last_file)
    states = States(values.members, (last or {}).get("members") or {}, unreachable(values.members))
    _wait_for_nodes(step, values, states)
    chosen = _chosen(values, states, last)
    if not chosen:
        step.results |= _nothing_measured(values, states.nodes, last)
        return
    note(f"measuring: {' '.join(chosen)}")
    report = _measure(step, values, chosen, absent(states.nodes, chosen))
    left_out = [node.name for node in states.nodes if node.name not in chosen]
    if report["state"] != "COMPLETED":
        _wait_for_reasons(states, refused=report["state"] == "UNAVAILABLE")
    # Another job got the nodes first, or the prolog of a node refused the job.
    if report["state"] in ("PENDING", "UNAVAILABLE") and not states.all_idle:
        step.results |= _nothing_measured(values, states.nodes, last)
        return
    completed = report["state"] == "COMPLETED" and report.get("exit_code") == 0
    result = {
        **report,
        "node_states": _reasons(),
        "left_out": left_out,
        "measured_at": int(time.time()),
        "settings": values.settings,
        # Nodes stay measured as long as they keep their addresses.
        "members": {
            member.name: member.address
            for member in values.members
            if (completed and member.name in chosen) or states.measured.get(member.name) == member.address
        },
    }
    files.write(values.result_file, json.dumps(result, ensure_ascii=False), 0o600)
    step.results |= result


def _wait_for_this_measurement(step: Step, values: ValidateValues) -> None:
    """Take a lock of the scope: the step of a run that was killed may still measure it, in the same folder."""
    longest = values.queue_limit + values.run_limit + values.measurement_limit + MARGIN_SECONDS
    lock = Lock(f"measure-{values.scope}", seconds=longest)
    step.at_end.append(lock.release)


def _wait_for_other_measurements(step: Step, values: ValidateValues) -> None:
    """Take a lock so that sites are measured at the same time, but the links between sites alone."""
    one_site = len({member.site for member in values.members}) == 1
    try:
        step.at_end.append(Lock("measure", shared=one_site, seconds=values.run_limit).release)
    except Failure:
        note("another measurement does not end; continuing without waiting")


def _wait_for_nodes(step: Step, values: ValidateValues, states: States) -> None:
    """Wait until all nodes are idle, or the others are drained without a job, or any are enough."""
    most = values.any_nodes

    def reported() -> bool:
        return states.read() or bool(states.nodes)

    def settled() -> bool:
        if states.read() or (most and any_idle(states.nodes, most)):
            return True
        return all(node.state == DRAINED or (most == 0 and node.use == BUSY) for node in states.not_idle)

    # slurmctld does not answer for a moment while it reads its files. The config limits the wait for other jobs
    # (queue_limit).
    if not wait_until(reported, _ANSWER_SECONDS):
        raise Failure("slurmctld reports no nodes", f"run 'sinfo' and 'journalctl -u slurmctld' on {step.host}")
    if not states.all_idle:
        wait_until(settled, values.queue_limit)
    if not states.explained:
        _wait_for_reasons(states)


def _wait_for_reasons(states: States, refused: bool = False) -> None:
    """Wait for the whole reason of each node. A job that a node `refused` may still be ending on the others."""
    wait_until(lambda: states.read() or (states.explained and not (refused and states.has(BUSY))), REASON_SECONDS)


def _chosen(values: ValidateValues, states: States, last: Mapping[str, Any] | None) -> list[str]:
    """Return the nodes that take part; none if they are too few."""
    most = values.any_nodes
    if values.parsed_plan.get("each_node"):
        return [node.name for node in states.nodes if node.use == IDLE][: most or None]
    if most or (most == 0 and not states.all_idle):
        return any_idle(states.nodes, most)
    if states.all_idle:
        # Measured nodes keep working while new nodes are measured. If no node is new, all are measured again, as after
        # a change of the settings.
        same_settings = last is not None and last.get("settings") == values.settings
        return (new_and_peers(states.nodes) if same_settings else []) or [node.name for node in states.nodes]
    # Leave out down and drained nodes and name them; wait for nodes with other jobs.
    return new_and_peers(states.nodes) if states.has(BUSY) else any_idle(states.nodes, 0)


def _nothing_measured(values: ValidateValues, nodes: Sequence[Node], last: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a report without a figure: BUSY, or UNAVAILABLE if a node is down or drained."""
    running = jobs(values.run_as)
    own = {name for job in running if job.measures for name in job.nodes}
    own -= {name for job in running if not job.measures for name in job.nodes}
    # A measurement job that does not end must not count as BUSY: a later `up` would find it still running.
    held = "a job of a measurement does not end there"
    nodes = [
        replace(node, use=OUT, state="held", reason=held) if node.use == BUSY and node.name in own else node
        for node in nodes
    ]
    busy = {node.name for node in nodes if node.use == BUSY}
    state = "UNAVAILABLE" if any(node.use == OUT for node in nodes) else "BUSY"
    note(f"nothing was measured, {state}: {'; '.join(map(str, nodes))}")
    return {
        **NO_JOB,
        "state": state,
        "node_states": _reasons(),
        "facts": {
            name: f"job {job.number} of {job.user}, {job.left} left"
            for job in reversed(running)
            for name in sorted(busy & set(job.nodes))
        },
        "left_out": [node.name for node in nodes if node.use != IDLE],
        "absent": absent(nodes, [node.name for node in nodes]),
        "measured_at": int(time.time()),
        "last": last,
    }


def _measure(step: Step, values: ValidateValues, chosen: Sequence[str], left_out: Mapping[str, str]) -> dict[str, Any]:
    """Run the driver as the user, and return its report."""
    task = {"plan": values.parsed_plan, "nodes": chosen, "absent": left_out}
    ended = run_as_submitter(values.run_as, *values.driver.split(), task=task, limit=values.measurement_limit)
    if ended.status == REFUSED:
        raise Failure(f"Slurm rejected the job of {values.scope}", f"run sinfo and sinfo -R on {step.host}")
    report = _object(ended.output, "state", "job_id")
    if report is None or not ended.ok:
        raise Failure(f"the measurement of {values.scope} was interrupted")
    return report


def _reasons() -> str:
    return "\n".join(" ".join(row) for row in slurm.sinfo("%n: %E", "-R") or ())


def _kept(path: str) -> dict[str, Any] | None:
    """Return a stored result; None if it is not valid."""
    return _object(files.read(path, _MOST_KEPT) or "", "state", "measured_at")


def _object(text: str, *keys: str) -> dict[str, Any] | None:
    """Return the JSON object in a text, which may be anything; None if it is not exactly one object with these keys."""
    try:
        value = json.loads(text)
        # This refuses NaN, and replaces half a character, which JSON allows and no file can contain.
        value = json.loads(json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.keys() >= set(keys) else None
