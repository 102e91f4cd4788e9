"""The files, units and accounts that roles declare for this machine; those that are no longer declared are removed.

Each kind of step has a record of them, by owner: a phase and a role, such as `compute/usage`. An item is in the record,
on the disk, before it is made, so that the next run or leaving finds it, wherever a step was cut off. Items of an owner
that is gone go before the first phase, and others after their owner's phase, which may still need them.

An item is a path, or `account NAME`. With `data ` before it, it stays until the machine leaves.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import PurePosixPath

from components.node import files, systemd
from components.node.failure import do_each
from components.node.install import FOLDER as PROGRAMS
from components.node.log import STATE_DIR, note
from components.node.passwd import remove_daemon_account
from components.node.run import run
from components.node.systemd import UNITS

FOLDER = f"{STATE_DIR}/made"
ACCOUNT, DATA = "account ", "data "
_COMMANDS = "/usr/local/bin/"
# The folder and account whose names opkssh requires (role user_keys).
OPKSSH, OPKSSH_ACCOUNT = "/etc/opk", "opksshuser"


class Record:
    """The record of a kind of step, while the step runs."""

    def __init__(self, step: str, declared: Mapping[str, Iterable[str]]) -> None:
        """Record what the owners of a step declare, and remove the items of other owners."""
        self._step, self._rows, self._owner = step, _read(step), ""
        self._declared = {owner: [*items] for owner, items in declared.items()}
        self._add(self._declared)
        for owner in self._rows.keys() - self._declared.keys():
            self._remove(owner)

    def begin(self, owner: str) -> None:
        """Remove items that the owner before has not declared again; the next ones belong to this one. Empty: none."""
        if self._owner:
            self._remove(self._owner)
        self._owner = owner

    def add(self, *items: str) -> None:
        """Record further items of the present owner, which makes them afterwards."""
        self._declared[self._owner] += items
        self._add({self._owner: items})

    def _add(self, declared: Mapping[str, Iterable[str]]) -> None:
        added = False
        for owner, items in declared.items():
            row = self._rows.setdefault(owner, [])
            new = [item for item in dict.fromkeys(items) if item not in row]
            if others := [item for item in new if not _is_ours(item)]:
                raise ValueError(f"{owner} declares {others[0]}, whose name does not show whose it is")
            added, row[:] = added or bool(new), [*row, *new]
        if added:
            self._write()

    def _remove(self, owner: str) -> None:
        row, declared = self._rows.get(owner, []), self._declared.get(owner, [])
        kept = [item for item in row if item in declared or item.startswith(DATA)]
        if kept != row:
            self._rows[owner] = kept
            self._remove_items(row)
            self._write()

    def _remove_items(self, items: Iterable[str]) -> None:
        """Remove those that neither this step nor another one needs."""
        rows = [self._rows, *(_read(step) for step in files.names_in(FOLDER) if step != self._step)]
        needed = {item.removeprefix(DATA) for by_owner in rows for row in by_owner.values() for item in row}
        for part in _removal([item for item in items if item not in needed]):
            part()

    def _write(self) -> None:
        rows = {owner: row for owner, row in self._rows.items() if row}
        with files.written_at_once():
            files.write(f"{FOLDER}/{self._step}", json.dumps(rows), 0o600)


def remove_all() -> None:
    """Remove everything that a record has, and the data: the machine leaves."""
    for step in reversed(files.names_in(FOLDER)):
        items = [item.removeprefix(DATA) for row in _read(step).values() for item in row]
        do_each(*_removal(items), partial(files.remove, f"{FOLDER}/{step}"))
    files.remove_if_empty(FOLDER)


def _read(step: str) -> dict[str, list[str]]:
    # A file that a write left when it was cut off.
    if step.startswith("."):
        return {}
    path = f"{FOLDER}/{step}"
    try:
        rows = json.loads(files.read(path) or "{}")
        return {owner: [item for item in row if _is_ours(item)] for owner, row in rows.items()}
    except (ValueError, TypeError, AttributeError):
        note(f"{path} is damaged; what it recorded stays if no role declares it")
        return {}


def _is_ours(item: str) -> bool:
    path = item.removeprefix(DATA).removeprefix(ACCOUNT)
    ours = "tailrack" in path or path.startswith((_COMMANDS, f"{OPKSSH}/")) or path == OPKSSH_ACCOUNT
    return ours and ".." not in path


def _removal(items: Sequence[str]) -> Iterator[Callable[[], object]]:
    """Yield functions that remove items, the last first: units end before their files and accounts go."""
    paths = [item for item in reversed(items) if item.startswith("/")]
    units = [path for path in paths if PurePosixPath(path).parent == PurePosixPath(UNITS)]
    if units:
        yield lambda: systemd.retire(*(PurePosixPath(path).name for path in units))
    for path in paths:
        if path not in units:
            yield partial(_remove_path, path)
    if any(path.startswith(f"{UNITS}/") for path in paths if path not in units):
        yield lambda: run("systemctl", "daemon-reload")
    for item in items:
        if item.startswith(ACCOUNT):
            yield partial(remove_daemon_account, item.removeprefix(ACCOUNT))


def _remove_path(path: str) -> None:
    # Another program of this name stays.
    if path.startswith(_COMMANDS) and f"{PROGRAMS}/" not in (files.read(path) or ""):
        return
    files.remove_folder(path)
    for folder in PurePosixPath(path).parents:
        name = str(folder)
        if "tailrack" in name or name == OPKSSH or (name.startswith(f"{UNITS}/") and folder.suffix == ".d"):
            files.remove_if_empty(name)
