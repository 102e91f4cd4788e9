"""Install a node's part: a timer that copies data sets to its disk."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, systemd
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt, run
from components.node.step.step import Step
from components.node.waiting import now, wait_until
from components.roles.datasets import paths
from components.roles.datasets.account import ensure_account
from components.roles.datasets.model import COMPLETE, FAILED, read_status
from components.roles.datasets.serve import prepare, remove_server
from components.roles.datasets.stage import HEAD_ADDRESS, last_plan, one_pass
from components.roles.datasets.versions import homes

WAIT_SECONDS = 1200
# A copy that fails for so long fails the step.
_FAILING_SECONDS = 90
_STATUS = f"{paths.HERE}/{paths.STATUS_FILE}"


@dataclass(frozen=True)
class ComputeValues:
    """Whether the config has data sets, those to wait for, and the head node's tailnet address."""

    datasets_used: bool
    datasets_wait: list[str]
    head_address: str


def compute(step: Step, values: ComputeValues) -> None:
    """Install it. Without data sets in the config, remove the copies that no job uses."""
    if values.datasets_used:
        ensure_account()
        prepare()
        files.write(HEAD_ADDRESS, values.head_address)
        systemd.reload(paths.STAGE, paths.STAGE_TIMER)
        systemd.enable(paths.STAGE_TIMER, now=True)
        # A run of an earlier program may take days; a new one goes on where it stopped.
        run("systemctl", "restart" if step.changed else "start", "--no-block", paths.STAGE)
        _wait_for(step.host, values.datasets_wait)
    elif files.exists(HEAD_ADDRESS) or files.exists(f"{systemd.UNITS}/{paths.STAGE_TIMER}"):
        _remove(step)


def _wait_for(host: str, names: list[str]) -> None:
    """Wait until this node has the data sets that are for its site. Raises Failure if one fails again and again."""
    if not names:
        return
    # It may be of an earlier config.
    files.remove(_STATUS)
    since: float | None = None

    def complete() -> bool:
        nonlocal since
        try:
            result = all_complete(host, names)
        except Failure:
            # Nodes try again: a neighbour may have been busy.
            since = now() if since is None else since
            if now() - since > _FAILING_SECONDS:
                raise
            return False
        since = None
        return result

    if not wait_until(complete, WAIT_SECONDS, 2):
        rows = read_status(files.read(_STATUS) or "")
        left = [f"{name} {rows[name].state}" for name in names if name in rows and rows[name].state != COMPLETE]
        raise Failure(
            f"data sets are not complete after {WAIT_SECONDS // 60} min ({', '.join(left) or 'there is no plan'}); "
            "copying goes on",
            "run 'tailrack data --watch' on the head node, then run up again; or set wait: false",
        )


def all_complete(host: str, names: list[str]) -> bool:
    """Return whether this node has all of these data sets that it should have. Raises Failure if one failed."""
    rows = read_status(files.read(_STATUS) or "")
    plan = last_plan()
    if plan is None or host not in plan.nodes or not {*names} <= {one.name for one in plan.sets}:
        return False
    sets = [one for one in plan.sets if one.name in names and one.wanted_at(plan.nodes[host].site)]
    here = [one.name for one in sets]
    for one in sets:
        if one.error and not one.version:
            raise Failure(f"{one.name} cannot be copied: {one.error}")
    for name in here:
        if name in rows and rows[name].state == FAILED:
            raise Failure(f"{name} cannot be copied: {rows[name].error}", "see 'tailrack data' on the head node")
    return all(name in rows and rows[name].state == COMPLETE for name in here)


def _remove(step: Step) -> None:
    files.remove(HEAD_ADDRESS)
    # End a transfer that is running.
    attempt("systemctl", "stop", paths.STAGE, quiet=True)
    try:
        one_pass()
    except Failure as failure:
        note(failure.reason)
    if left := homes():
        note(f"{step.host}: {', '.join(home.base for home in left)} stay until the jobs that may use them have ended")
        return
    remove_node()


def remove_node() -> None:
    """Remove the node's part."""
    systemd.retire(paths.STAGE_TIMER, paths.STAGE)
    files.remove(paths.STAGE_PROGRAM)
    files.remove(f"{paths.MODULES}/node.conf")
    for path in (paths.FROM_HEAD, paths.HERE, paths.LISTS):
        files.remove_folder(path)
    for folder in sorted(files.lines(paths.MADE), reverse=True):
        files.remove_if_empty(folder)
    for path in (paths.MADE, paths.FOLDERS, paths.FEATURES, HEAD_ADDRESS):
        files.remove(path)
    if not files.exists(f"{paths.MODULES}/head.conf"):
        remove_server()
