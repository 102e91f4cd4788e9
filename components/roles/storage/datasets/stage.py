"""A node's part: a program that copies the planned data sets to its disk and reports its state (`data-stage`).

tailrack-data stage          as the timer does
tailrack-data verify [NAME]  compare the sums of all files, or of one data set, with the next run
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial

from components.node import files, run, systemd
from components.node.failure import Failure, run_program
from components.node.locks import Lock
from components.node.log import note, printable
from components.node.step.step import STATE_DIR
from components.node.waiting import now, sleep
from components.roles.slurm.slurm.node_state import set_live_features
from components.roles.storage.datasets import model
from components.roles.storage.datasets.copies import VERIFY, Copy, Home, homes, remove_unused
from components.roles.storage.datasets.model import HEAD_ADDRESS, HERE, STAGE, STAGE_TIMER, Plan, PlannedSet, Progress
from components.roles.storage.datasets.serve import listen, prepare, pull, serve

ROLE = "datasets"
STATUS, FEATURES = f"{HERE}/{model.STATUS_FILE}", f"{model.STATE}/features"
# Seconds: between passes while something is missing, at first and at most; for one run; until features are set again,
# because slurmctld may have forgotten them.
_PAUSE, _LONGEST_PAUSE, _RUN_SECONDS, _FEATURES_SECONDS = 2.0, 20.0, 600, 120


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    match [*arguments]:
        case ["stage"]:
            return run_program("", stage)
        case ["verify", *names]:
            return run_program("", partial(verify, names))
    sys.stderr.write(f"{__doc__}")
    return 2


def verify(names: Sequence[str]) -> None:
    """Let the next run compare the sums of data sets, by default of all."""
    for name in names or [home.name for home in homes()]:
        files.write(f"{VERIFY}/{name.replace('/', '')}", "")
    run.run("systemctl", "start", "--no-block", STAGE)


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
    given, age = [line for line in files.lines(FEATURES) if line], files.age_of(FEATURES)
    if wanted == given and (not given or (age is not None and age < _FEATURES_SECONDS)):
        return
    if set_live_features(node, ROLE, wanted):
        # Writing the same text would not change the file's time.
        files.remove(FEATURES)
        if wanted:
            files.write(FEATURES, "\n".join(wanted))


class Report:
    """This node's state, which the head node reads."""

    def __init__(self, wanted: Sequence[PlannedSet]) -> None:
        last = model.read_status(files.read(STATUS) or "")
        rows = {one.name: Progress(one.version, model.WAITS) for one in wanted}
        # A data set keeps its state while this pass works on others.
        kept = {name: last[name] for name, row in rows.items() if name in last and last[name].version == row.version}
        self.rows = rows | kept

    def set(self, name: str, progress: Progress) -> None:
        """Set the state of a data set. The last error stays until the copy is complete."""
        error = "" if progress.state == model.COMPLETE else progress.error or self.rows[name].error
        self.rows[name] = replace(progress, error=error)
        text = json.dumps({"sets": {name: asdict(row) for name, row in self.rows.items()}})
        files.write(STATUS, text, 0o640, "root", model.ACCOUNT)
