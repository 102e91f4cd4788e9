"""The program on nodes (`data-stage`): copy the planned data sets to this node's disk, and report its state.

tailrack-data stage          as the timer does
tailrack-data verify [NAME]  compare the sums of all files, or of one data set, with the next run
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from time import time

from components.node import files, run, systemd
from components.node.failure import Failure
from components.node.locks import Lock
from components.node.log import note
from components.node.step.step import STATE_DIR
from components.node.text import printable
from components.node.waiting import now, sleep, within
from components.roles.datasets.copying import Copying
from components.roles.datasets.feature import set_features
from components.roles.datasets.in_use import oldest_job
from components.roles.datasets.known import Known
from components.roles.datasets.model import (
    COMPLETE,
    FAILED,
    MOST_ERROR,
    WAITS,
    Plan,
    PlannedSet,
    Progress,
    list_name,
    read_plan,
    read_status,
    sums_name,
)
from components.roles.datasets.paths import ACCOUNT, FROM_HEAD, HERE, LISTS, PLAN_FILE, STAGE_TIMER, STATE, STATUS_FILE
from components.roles.datasets.rsync import pull
from components.roles.datasets.serve import listen, prepare, serve
from components.roles.datasets.versions import Home, homes

# The head node's tailnet address; empty once the config has no data sets.
HEAD_ADDRESS = f"{STATE}/head"
# Seconds: between passes while something is missing, at first and at most; for one run; before a failed copy is tried
# again.
_PAUSE, _LONGEST_PAUSE, _RUN_SECONDS, _RETRY_SECONDS = 2, 20, 600, 30
_REPORT_SECONDS = 5.0


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    os.environ.update({"LC_ALL": "C.UTF-8", "PATH": run.PATH})
    os.umask(0o022)
    try:
        match [*arguments]:
            case ["stage"]:
                stage()
            case ["verify", *names]:
                verify(names)
            case _:
                sys.stderr.write(f"{__doc__}")
                return 2
    except Failure as failure:
        note(f"{failure.reason}; next: {failure.remedy or 'see above'}")
        return 1
    return 0


def verify(names: Sequence[str]) -> None:
    """Forget when files were last read, so that the next run reads them all, and start it."""
    with Lock("data-known", seconds=60):
        known = Known.read()
        known.forget_checks(names)
        known.write()
    run.run("systemctl", "start", "--no-block", "tailrack-data-stage.service")


def stage() -> None:
    """Run passes until this node has all, for ten minutes at most; the timer starts the next run."""
    end, pause = now() + _RUN_SECONDS, float(_PAUSE)
    with Lock("data-stage", seconds=0):
        while one_pass() and now() < end:
            sleep(pause)
            # Thousands of nodes that wait for long must not keep the head node busy.
            pause = min(1.2 * pause, _LONGEST_PAUSE)
    if not files.exists(HEAD_ADDRESS) and not homes():
        # The config has no data sets any more, and the last job that may have used one has ended.
        systemd.retire(STAGE_TIMER)


def one_pass() -> bool:
    """Do all once, and return whether something is missing that may come soon."""
    node = (files.read(f"{STATE_DIR}/node-name") or "").strip()
    plan = _plan()
    if plan is None:
        return False
    site = plan.nodes[node].site if node in plan.nodes else None
    prepare()
    files.make_folder(HERE, 0o750, group=ACCOUNT)
    known = Known.read()
    wanted = [one for one in plan.sets if site is not None and one.wanted_at(site)]
    report = Report(wanted)
    if node in plan.nodes:
        _serve(plan, node, wanted)
    elsewhere = {home for home in homes() if home not in {*map(_home, wanted)}}
    for home in elsewhere:
        home.remove_link()
    taken = 0
    for one in wanted:
        row = known.of(one.name)
        if row.failed.get("version") == one.version and within(_RETRY_SECONDS, row.failed["at"], time()):
            report.set(one.name, Progress(one.version, FAILED, row.failed["done"], row.failed["error"]))
            continue
        row.failed = {}
        copying = Copying(node, plan, one, known, report.of(one.name), taken)
        try:
            copying.bring()
        except Failure as failure:
            remedy = f"; next: {failure.remedy}" if failure.remedy else ""
            error = printable(f"{failure.reason}{remedy}", MOST_ERROR)
            report.set(one.name, Progress(one.version, FAILED, copying.done, error))
            row.failed = {"version": one.version, "at": time(), "done": copying.done, "error": error}
            note(f"{one.name}: {failure.reason}")
        taken += copying.done
    # A node that gets a new version still has the last one.
    set_features(node, [one.name for one in wanted if known.of(one.name).pointed in _home(one).versions()])
    remove_unused(node, wanted, known)
    with Lock("data-known", seconds=60):
        known.write()
    report.write()
    _remove_lists(wanted)
    return any(row.state in (WAITS, FAILED) and one.version for one in wanted for row in [report.rows[one.name]])


def _plan() -> Plan | None:
    """Return the head node's plan; the last one while it does not answer; an empty one without data sets."""
    head = (files.read(HEAD_ADDRESS) or "").strip()
    if not head:
        return Plan(0, 0, 0, "", [], {})
    ended = pull(head, "plan", FROM_HEAD)
    if not ended.ok:
        note(f"the head node does not give its plan: {printable(ended.errors, 300)}")
    return last_plan()


def last_plan() -> Plan | None:
    """Return the last plan that this node got."""
    try:
        return read_plan(files.read(f"{FROM_HEAD}/{PLAN_FILE}") or "")
    except (ValueError, TypeError, KeyError):
        return None


def _home(one: PlannedSet) -> Home:
    return Home(one.folder, one.name)


def _serve(plan: Plan, node: str, wanted: Sequence[PlannedSet]) -> None:
    me = plan.nodes[node]
    modules = {"state": HERE}
    for one in wanted:
        if files.is_folder(_home(one).base):
            modules[f"set-{one.name}"] = _home(one).base
    serve("node", modules)
    mine = {group for group, _, _ in me.fabric}
    peers = {address for other in plan.nodes.values() for group, _, address in other.fabric if group in mine}
    listen(me.address, sorted({address for _, _, address in me.fabric}), sorted(peers))


def remove_unused(node: str, wanted: Sequence[PlannedSet], known: Known) -> None:
    """Remove versions that were replaced, and data sets that are not wanted here, once no job can use them."""
    present = {_home(one): one.version for one in wanted}
    oldest: float | None = None
    asked = False
    for home in homes():
        keep = present.get(home)
        row = known.of(home.name)
        complete = home.versions()
        # Until the new version is complete, the last one stays.
        last = row.pointed if keep and keep not in complete else ""
        for version in home.parts():
            if version != keep:
                home.remove(f"{version}.part")
        for version in complete:
            if version in (keep, last):
                row.replaced.pop(version, None)
                continue
            since = row.replaced[version] = min(row.replaced.get(version, time()), time())
            if not asked:
                oldest, asked = oldest_job(node), True
            if oldest is not None and oldest > since:
                home.remove(version)
                row.replaced.pop(version, None)
                note(f"removed {home.version(version)}: no job uses it")
        if keep is None and not home.versions() and not home.parts():
            home.remove_all()
            known.rows.pop(home.name, None)


def _remove_lists(wanted: Sequence[PlannedSet]) -> None:
    names = {STATUS_FILE, *(sums_name(one.name, one.version) for one in wanted)}
    for name in files.names_in(HERE):
        if name not in names:
            files.remove(f"{HERE}/{name}")
    present = {list_name(home.name, version) for home in homes() for version in home.versions()}
    for name in files.names_in(LISTS):
        if name not in present:
            files.remove(f"{LISTS}/{name}")


class Report:
    """This node's state, which the head node reads."""

    def __init__(self, wanted: Sequence[PlannedSet]) -> None:
        last = read_status(files.read(f"{HERE}/{STATUS_FILE}") or "")
        self.rows = {one.name: Progress(one.version, WAITS) for one in wanted}
        # A complete copy stays complete while this pass works on others.
        for name, row in self.rows.items():
            before = last.get(name)
            if before and row.version and (before.version, before.state) == (row.version, COMPLETE):
                self.rows[name] = before
        self._written = 0.0

    def of(self, name: str) -> Callable[[Progress], None]:
        """Return a function that sets the state of a data set."""
        return lambda progress: self.set(name, progress)

    def set(self, name: str, progress: Progress) -> None:
        changed = self.rows[name].state != progress.state
        self.rows[name] = progress
        if changed or now() - self._written > _REPORT_SECONDS:
            self.write()

    def write(self) -> None:
        self._written = now()
        text = json.dumps({"sets": {name: asdict(row) for name, row in self.rows.items()}})
        files.write(f"{HERE}/{STATUS_FILE}", text, 0o640, "root", ACCOUNT)
