"""A node's part: a program that copies the planned data sets to its disk and reports its state (`data-stage`).

tailrack-data stage          as the timer does
tailrack-data verify [NAME]  compare the sums of all files, or of one data set, with the next run
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial

from components.node import files, run, systemd
from components.node.failure import Failure
from components.node.locks import Lock
from components.node.log import note
from components.node.passwd import make_daemon_account
from components.node.step.step import STATE_DIR, Step
from components.node.text import printable
from components.node.waiting import now, sleep, wait_until
from components.roles.datasets import model
from components.roles.datasets.copies import FOLDERS, MADE, VERIFY, Copy, Home, homes, remove_unused
from components.roles.datasets.model import HEAD_ADDRESS, HERE, STAGE, STAGE_TIMER, Plan, PlannedSet, Progress
from components.roles.datasets.serve import MODULES, listen, prepare, pull, remove_server, serve
from components.roles.slurm.live_features import set_live_features

ROLE = "datasets"
_STATUS, _FEATURES = f"{HERE}/{model.STATUS_FILE}", f"{model.STATE}/features"
# Seconds: between passes while something is missing, at first and at most; for one run; until features are set again,
# because slurmctld may have forgotten them.
_PAUSE, _LONGEST_PAUSE, _RUN_SECONDS, _FEATURES_SECONDS = 2.0, 20.0, 600, 120
# Seconds: `up` waits for copies; a copy that fails for so long fails it.
_WAIT_SECONDS, _FAILING_SECONDS = 1200, 90


@dataclass(frozen=True)
class ComputeValues:
    """Whether the config has data sets, those to wait for, and the head node's tailnet address."""

    datasets_used: bool
    datasets_wait: list[str]
    head_address: str


def compute(step: Step, values: ComputeValues) -> None:
    """Install it. Without data sets in the config, remove the copies that no job uses."""
    if values.datasets_used:
        make_daemon_account(model.ACCOUNT)
        prepare()
        files.write(HEAD_ADDRESS, values.head_address)
        systemd.reload(STAGE, STAGE_TIMER)
        systemd.enable(STAGE_TIMER, now=True)
        # A run of an earlier program may take days; a new one goes on where it stopped.
        run.run("systemctl", "restart" if step.changed else "start", "--no-block", STAGE)
        if values.datasets_wait:
            _wait_for(step.host, values.datasets_wait)
    elif files.exists(HEAD_ADDRESS) or files.exists(f"{systemd.UNITS}/{STAGE_TIMER}"):
        files.remove(HEAD_ADDRESS)
        # End a transfer that is running.
        run.attempt("systemctl", "stop", STAGE, quiet=True)
        one_pass()
        if left := homes():
            paths = ", ".join(home.base for home in left)
            note(f"{step.host}: {paths} stay until the jobs that may use them have ended")
        else:
            remove_node()


def _wait_for(host: str, names: list[str]) -> None:
    """Wait until this node has the data sets that are for its site. Raises Failure if one fails again and again."""
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

    if not wait_until(complete, _WAIT_SECONDS, 2):
        raise Failure(
            f"data sets are not complete after {_WAIT_SECONDS // 60} min ({', '.join(names)}); copying goes on",
            "run 'tailrack data --watch' on the head node, then run up again; or set wait: false",
        )


def all_complete(host: str, names: list[str]) -> bool:
    """Return whether this node has all of these data sets that it should have. Raises Failure if one failed."""
    rows = model.read_status(files.read(_STATUS) or "")
    plan = last_plan()
    if plan is None or host not in plan.nodes or not {*names} <= {one.name for one in plan.sets}:
        return False
    sets = [one for one in plan.sets if one.name in names and one.wanted_at(plan.nodes[host].site)]
    found = {one.name: rows.get(one.name, Progress(one.version, model.WAITS)) for one in sets}
    for one in sets:
        if error := (one.error if not one.version else found[one.name].error):
            raise Failure(f"{one.name} cannot be copied: {error}", "see 'tailrack data' on the head node")
    return all(row.state == model.COMPLETE for row in found.values())


def remove_node() -> None:
    """Remove the node's part."""
    systemd.retire(STAGE_TIMER, STAGE)
    files.remove(model.STAGE_PROGRAM)
    files.remove(f"{MODULES}/node.conf")
    for folder in sorted(files.lines(MADE), reverse=True):
        files.remove_if_empty(folder)
    for path in (model.FROM_HEAD, HERE, f"{model.STATE}/replaced", VERIFY, MADE, FOLDERS, _FEATURES, HEAD_ADDRESS):
        files.remove_folder(path)
    if not files.exists(f"{MODULES}/head.conf"):
        remove_server()


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    os.environ.update({"LC_ALL": "C.UTF-8", "PATH": run.PATH})
    os.umask(0o022)
    try:
        match [*arguments]:
            case ["stage"]:
                stage()
            case ["verify", *names]:
                for name in names or [home.name for home in homes()]:
                    files.write(f"{VERIFY}/{name.replace('/', '')}", "")
                run.run("systemctl", "start", "--no-block", STAGE)
            case _:
                sys.stderr.write(f"{__doc__}")
                return 2
    except Failure as failure:
        note(f"{failure.reason}; next: {failure.remedy or 'see above'}")
        return 1
    return 0


def stage() -> None:
    """Run passes until this node has all, for ten minutes at most; the timer starts the next run."""
    end, pause = now() + _RUN_SECONDS, _PAUSE
    with Lock("data-stage", seconds=0):
        while one_pass() and now() < end:
            sleep(pause)
            # Thousands of nodes that wait for long must not keep the head node busy.
            pause = min(1.2 * pause, _LONGEST_PAUSE)
    if not files.exists(HEAD_ADDRESS) and not homes():
        # The config has no data sets any more, and the last job that may have used one has ended.
        systemd.retire(STAGE_TIMER)


def last_plan() -> Plan | None:
    """Return the last plan that this node got; an empty one without data sets in the config."""
    if not files.exists(HEAD_ADDRESS):
        return Plan(0, 0, "", [], {})
    return model.read_plan(files.read(f"{model.FROM_HEAD}/{model.PLAN_FILE}") or "")


def one_pass() -> bool:
    """Do all once, and return whether something is missing that may come soon."""
    node = (files.read(f"{STATE_DIR}/node-name") or "").strip()
    if files.exists(HEAD_ADDRESS):
        ended = pull((files.read(HEAD_ADDRESS) or "").strip(), "plan", model.FROM_HEAD)
        if not ended.ok:
            note(f"the head node does not give its plan: {printable(ended.errors, 300)}")
    plan = last_plan()
    if plan is None:
        return False
    site = plan.nodes[node].site if node in plan.nodes else None
    prepare()
    files.make_folder(HERE, 0o750, group=model.ACCOUNT)
    wanted = {Home(one.folder, one.name): one for one in plan.sets if site is not None and one.wanted_at(site)}
    report = Report([*wanted.values()])
    if node in plan.nodes:
        _serve(plan, node, [*wanted])
    for home in homes():
        if home not in wanted:
            home.remove_link()
    for one in wanted.values():
        copy = Copy(node, plan, one, partial(report.set, one.name))
        try:
            copy.bring()
        except Failure as failure:
            remedy = f"; next: {failure.remedy}" if failure.remedy else ""
            error = printable(f"{failure.reason}{remedy}", model.MOST_ERROR)
            report.set(one.name, Progress(one.version, model.FAILED, error, copy.source))
            note(f"{one.name}: {failure.reason}")
    # A node that gets a new version still has the last one.
    set_features(node, [home.name for home in wanted if home.pointed])
    remove_unused(node, {home: one.version for home, one in wanted.items()})
    return any(report.rows[one.name].state != model.COMPLETE and one.version for one in wanted.values())


def _serve(plan: Plan, node: str, wanted: Sequence[Home]) -> None:
    me = plan.nodes[node]
    modules = {f"set-{home.name}": home.base for home in wanted if files.is_folder(home.base)}
    serve("node", {"state": HERE, **modules})
    mine = {group for group, _, _ in me.fabric}
    peers = {address for other in plan.nodes.values() for group, _, address in other.fabric if group in mine}
    listen(me.address, sorted({address for _, _, address in me.fabric}), sorted(peers))


def set_features(node: str, names: Sequence[str]) -> None:
    """Give the node the features `data-NAME` of these data sets, and take those that were given before."""
    wanted = sorted(f"data-{name}" for name in names)
    given, age = [line for line in files.lines(_FEATURES) if line], files.age_of(_FEATURES)
    if wanted == given and (not given or (age is not None and age < _FEATURES_SECONDS)):
        return
    if set_live_features(node, ROLE, wanted):
        # Writing the same text would not change the file's time.
        files.remove(_FEATURES)
        if wanted:
            files.write(_FEATURES, "\n".join(wanted))


class Report:
    """This node's state, which the head node reads."""

    def __init__(self, wanted: Sequence[PlannedSet]) -> None:
        last = model.read_status(files.read(_STATUS) or "")
        rows = {one.name: Progress(one.version, model.WAITS) for one in wanted}
        # A data set keeps its state while this pass works on others.
        kept = {name: last[name] for name, row in rows.items() if name in last and last[name].version == row.version}
        self.rows = rows | kept

    def set(self, name: str, progress: Progress) -> None:
        """Set the state of a data set. The last error stays until the copy is complete."""
        error = "" if progress.state == model.COMPLETE else progress.error or self.rows[name].error
        self.rows[name] = replace(progress, error=error)
        text = json.dumps({"sets": {name: asdict(row) for name, row in self.rows.items()}})
        files.write(_STATUS, text, 0o640, "root", model.ACCOUNT)
