"""The last step of leaving: remove all remaining files with the cluster's name, and list what stays."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from dataclasses import dataclass

from components.node import files
from components.node.packages import RECORD, missing_of
from components.node.parts import do_each
from components.node.run import attempt
from components.node.step.step import LOG_DIR, STATE_DIR, Step
from components.node.systemd import UNITS, retire

_LIST = f"{LOG_DIR}/left"
_PROGRAMS = "/usr/local/sbin"
_LEAVE = "tailrack-leave"
_DROP_INS = ("tailrack.conf", "tailrack-restart.conf", "tailrack-protect.conf")
# Folders for drop-ins that the cluster created: these two, and those of units.
_FOLDERS = ("/etc/systemd/resolved.conf.d", "/etc/exports.d")
_KEPT_FOLDERS = {
    "/var/lib/slurm/accounting": "job usage, the database of Slurm's accounting: /var/lib/slurm/accounting",
    "/var/lib/tailrack-mlflow": (
        "the database of MLflow: /var/lib/tailrack-mlflow; its artifacts are on the share, in mlflow"
    ),
    f"{STATE_DIR}/backup": f"files from before the cluster, which it moved away: {STATE_DIR}/backup",
}


@dataclass(frozen=True)
class Adopted:
    """True if no logout from the tailnet follows, which otherwise removes the rest (tailnet/leave.py)."""

    node_adopt: bool


def leave(step: Step, values: Adopted) -> None:
    """Remove the files. A second run finds fewer, and does not list again what stays."""
    do_each(
        _list_remains,
        _retire_units,
        _remove_drop_ins,
        lambda: remove_programs(all_of_them=values.node_adopt),
        lambda: files.remove_folder("/usr/local/lib/tailrack"),
        lambda: files.remove_folder("/etc/tailrack"),
        lambda: remove_state("" if values.node_adopt else "tailnet"),
    )
    attempt("systemctl", "daemon-reload")
    attempt("systemctl", "reset-failed", "tailrack-*")


def _list_remains() -> None:
    if files.exists(f"{STATE_DIR}/node-name"):
        files.write(_LIST, "\n".join(_remains()))


def _remains() -> Iterator[str]:
    yield f"The cluster has left {(files.read('/etc/hostname') or '').strip()}. Still here:"
    yield f"- the logs of its steps, in {LOG_DIR}, and its scripts, in ~/.tailrack of the login that it used"
    yield "- on a head node, users' files: the directory of the share, owned by their uids"
    for folder, line in _KEPT_FOLDERS.items():
        # Accounts own folders above some of them.
        parts = files.parts_of(folder)
        if parts and parts[-1].path == folder and stat.S_ISDIR(parts[-1].type):
            yield f"- {line}"
    recorded = sorted(set(files.lines(RECORD)))
    missing = missing_of(recorded) if recorded else []
    if packages := [name for name in recorded if name not in missing]:
        yield f"- packages, whose daemons do not start: apt-get autoremove --purge {' '.join(packages)}"


def _retire_units() -> None:
    retire(*(name for name in _named(UNITS) if not files.is_folder(f"{UNITS}/{name}")))


def _remove_drop_ins() -> None:
    folders = [f"{UNITS}/{name}" for name in files.names_in(UNITS) if name.endswith(".d")]
    for folder in folders:
        for name in _DROP_INS:
            files.remove(f"{folder}/{name}")
    for folder in (*folders, *_FOLDERS):
        files.remove_if_empty(folder)


def remove_programs(*, all_of_them: bool) -> None:
    """Remove the cluster's programs, perhaps without the one that runs this."""
    for name in _named(_PROGRAMS):
        if all_of_them or name != _LEAVE:
            files.remove(f"{_PROGRAMS}/{name}")


def remove_state(kept: str) -> None:
    """Remove the records but the backup, and those whose names begin with `kept`."""
    for name in files.names_in(STATE_DIR):
        if name != "backup" and not (kept and name.startswith(kept)):
            files.remove_folder(f"{STATE_DIR}/{name}")
    files.remove_if_empty(STATE_DIR)


def _named(folder: str) -> list[str]:
    return [name for name in files.names_in(folder) if name.startswith("tailrack-")]
