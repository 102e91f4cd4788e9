"""A home folder for the Pulumi CLI that is the user's own, but for the log that it would keep of every run.

Pulumi 3.260 writes a log of each command into `logs` of its home, unasked, compressed and encrypted, and has no setting
for it (pkg/logging/encrypted.go). Of a preview of many hosts that was nearly half of the CLI's work (docs/scale.md).
Where `logs` is no folder it goes on without (pkg/cmd/pulumi/pulumi.go).
"""

from __future__ import annotations

import os
from pathlib import Path

LOGS = "logs"
_WORDS = "A file in the place of a folder, so that Pulumi keeps no log of every run (docs/scale.md of tailrack).\n"


def prepare_home(folder: Path, users_own: Path) -> None:
    """Make a home in which all is a link to what the user's own has, and `logs` is a file.

    What the CLI makes anew there stays there, but for plugins: those are for every project of the user.
    """
    (users_own / "plugins").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    names = {entry.name for entry in users_own.iterdir()} - {LOGS}
    for entry in folder.iterdir():
        if entry.is_symlink() and entry.name not in names:
            entry.unlink(missing_ok=True)
    for name in names:
        _link(folder / name, users_own / name)
    if not (folder / LOGS).exists():
        (folder / LOGS).write_text(_WORDS, encoding="utf-8")


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    if link.is_dir() and not link.is_symlink():
        return  # made here before the user had one
    # In one step: another run may be reading it.
    made = link.with_name(f".{link.name}.{os.getpid()}")
    made.unlink(missing_ok=True)
    made.symlink_to(target)
    made.replace(link)
