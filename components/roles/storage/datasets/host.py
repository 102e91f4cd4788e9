"""Copy data sets to the nodes' disks: the head node plans (plan.py), and each node copies (stage.py)."""

import json
from dataclasses import dataclass, field

from components.node import files, run, systemd
from components.node.failure import Failure, do_each
from components.node.log import note
from components.node.passwd import make_daemon_account
from components.node.step.step import Step
from components.node.waiting import now, wait_until
from components.roles.slurm.slurm.node_state import FEATURES as FOLDER
from components.roles.storage.datasets import model
from components.roles.storage.datasets.copies import MADE, Home, homes
from components.roles.storage.datasets.model import (
    FETCHED,
    HEAD,
    HEAD_ADDRESS,
    HEAD_TIMER,
    PLAN,
    SETTINGS,
    STAGE,
    STAGE_TIMER,
    Progress,
)
from components.roles.storage.datasets.serve import listen, prepare, serve
from components.roles.storage.datasets.stage import ROLE, STATUS, last_plan, one_pass

# Seconds: `up` waits for copies; a copy that fails for so long fails it.
_WAIT_SECONDS, _FAILING_SECONDS = 1200, 90


@dataclass(frozen=True)
class HeadValues:
    """The settings, and the secret keys by data set, as JSON."""

    datasets_settings: str
    datasets_keys: str = field(repr=False)
    head_address: str


def services(step: Step, values: HeadValues) -> None:
    """Install it. The work goes on in the background."""
    make_daemon_account(model.ACCOUNT)
    prepare()
    more = {"keys": json.loads(values.datasets_keys), "head": values.head_address}
    files.write(SETTINGS, json.dumps({**json.loads(values.datasets_settings), **more}), 0o600)
    files.make_folder(FETCHED, 0o700)
    files.make_folder(PLAN, 0o750, group=model.ACCOUNT)
    serve("head", {"plan": PLAN})
    listen(values.head_address)
    systemd.reload(HEAD, HEAD_TIMER)
    systemd.enable(HEAD_TIMER, now=True)
    # A run with earlier settings may take long: end it.
    run.run("systemctl", "restart", "--no-block", HEAD)
    note("data sets are copied in the background: 'tailrack data' shows how far")


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
    else:
        files.remove(HEAD_ADDRESS)
        # End a transfer that is running.
        run.attempt("systemctl", "stop", STAGE, quiet=True)
        one_pass()
        if left := homes():
            paths = ", ".join(home.base for home in left)
            note(f"{step.host}: {paths} stay until the jobs that may use them have ended")
            # They remove the copies then.
            units = (f"{systemd.UNITS}/{name}" for name in (STAGE, STAGE_TIMER))
            step.declare(model.STAGE_PROGRAM, model.FILES_PROGRAM, model.STATE, *units)
        else:
            _remove_folders()


def _wait_for(host: str, names: list[str]) -> None:
    """Wait until this node has the data sets that are for its site. Raises Failure if one fails again and again."""
    # It may be of an earlier config.
    files.remove(STATUS)
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
    rows = model.read_status(files.read(STATUS) or "")
    plan = last_plan()
    if plan is None or host not in plan.nodes or not {*names} <= {one.name for one in plan.sets}:
        return False
    sets = [one for one in plan.sets if one.name in names and one.wanted_at(plan.nodes[host].site)]
    found = {one.name: rows.get(one.name, Progress(one.version, model.WAITS)) for one in sets}
    for one in sets:
        if error := (one.error if not one.version else found[one.name].error):
            raise Failure(f"{one.name} cannot be copied: {error}", "see 'tailrack data' on the head node")
    return all(row.state == model.COMPLETE for row in found.values())


def leave(step: Step) -> None:
    """Stop copying and serving, and remove the copies."""
    units = (HEAD_TIMER, HEAD, STAGE_TIMER, STAGE, model.SOCKET, model.SERVER)
    do_each(lambda: systemd.retire(*units), *(lambda home=home: _remove(home) for home in homes()))
    do_each(_remove_folders, lambda: files.remove_folder(model.STATE), lambda: files.remove(f"{FOLDER}/{ROLE}"))
    files.remove_if_empty(FOLDER)


def _remove(home: Home) -> None:
    home.remove_link()
    home.remove(*home.names())


def _remove_folders() -> None:
    """Remove the folders of copies that were made for them."""
    for folder in sorted(files.lines(MADE), reverse=True):
        files.remove_if_empty(folder)
