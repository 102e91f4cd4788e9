"""The machine's NFS units as they were before the cluster, so that the machine can leave it."""

from __future__ import annotations

import re
from itertools import zip_longest

from components.node import files
from components.node.log import note
from components.node.run import attempt, run
from components.node.step.step import STATE_DIR

# Lines `unit NAME ENABLED ACTIVE` and `folder PATH`.
NFS_BEFORE = f"{STATE_DIR}/nfs-before"

# States of unit files that systemd starts by itself or at a request; "enabled-runtime" begins with one.
_STARTED = ("static", "indirect", "alias", "generated")


def note_units(*units: str, older: bool = False) -> None:
    """Note units once, before the first change.

    older   whether a release that noted nothing has changed them
    """
    noted = {line.split()[1] for line in files.lines(NFS_BEFORE) if line.startswith("unit ")}
    unnoted = [unit for unit in units if unit not in noted]
    if not unnoted:
        return
    # Some lines per unit, in the units' order, with empty lines between.
    shown = run("systemctl", "show", "-p", "UnitFileState", "-p", "ActiveState", *unnoted).split("\n\n")
    lines = files.lines(NFS_BEFORE)
    for unit, text in zip_longest(unnoted, shown[: len(unnoted)], fillvalue=""):
        state = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        enabled, active = state.get("UnitFileState"), state.get("ActiveState")
        if older:
            enabled, active = "disabled", "inactive"
        lines.append(f"unit {unit} {enabled or 'not-found'} {active or 'inactive'}")
    files.write(NFS_BEFORE, "\n".join(lines))


def ran_before(unit: str) -> bool:
    """Return whether a unit ran before, or was not noted."""
    pattern = re.compile(rf"unit {re.escape(unit)} \S+ (inactive|failed)")
    return not any(map(pattern.fullmatch, files.lines(NFS_BEFORE)))


def restore_units(pattern: str = ".") -> None:
    """Restore the units whose lines match a pattern: masked, disabled and missing ones stay so; those that ran run.

    An error does not end it.
    """
    matches = re.compile(pattern).search
    rows = [line.split() for line in files.lines(NFS_BEFORE) if matches(line)]
    for kind, name, *states in rows:
        if kind == "unit":
            _restore(name, states[0])
        elif kind == "folder" and not files.remove_if_empty(name):
            note(f"{name} is not empty")
    units = [row for row in rows if row[0] == "unit"]
    # Once for all, because it takes seconds on a busy machine.
    if units:
        attempt("systemctl", "daemon-reload")
    for _, name, _, active in units:
        if active == "active" and not attempt("systemctl", "restart", name).ok:
            note(f"{name} does not start")
    files.remove_lines(NFS_BEFORE, lambda line: bool(matches(line)))


def _restore(name: str, enabled: str) -> None:
    if enabled.startswith("masked"):
        return
    if not _change("unmask", name):
        note(f"{name} is masked still")
    if enabled == "enabled":
        if not _change("enable", name):
            note(f"{name} is not enabled")
    elif not enabled.startswith("enabled") and enabled not in _STARTED and not _change("disable", name):
        note(f"{name} is not there")


def _change(verb: str, name: str) -> bool:
    return attempt("systemctl", verb, "-q", "--no-reload", name).ok
