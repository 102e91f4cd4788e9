"""A home folder for the Pulumi CLI that links to the user's home folder, without the log of every run.

Pulumi 3.260 writes a compressed, encrypted log of each command into `logs` of its home, without a setting against it
(pkg/logging/encrypted.go). For a preview of many hosts, that was nearly half of the CLI's work (docs/figures.md). If
`logs` is not a folder, the CLI continues without a log (pkg/cmd/pulumi/pulumi.go).
"""

from __future__ import annotations

import os
from pathlib import Path

LOGS = "logs"
_WORDS = "This file replaces a folder, so that Pulumi does not log every run (docs/figures.md of tailrack).\n"


def prepare_home(folder: Path, user_home: Path) -> None:
    """Make a home folder with links to each entry of the user's home folder, and a file named `logs`.

    Files that the CLI creates stay in this folder, except plugins, which all projects of the user share.
    """
    (user_home / "plugins").mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    names = {entry.name for entry in user_home.iterdir()} - {LOGS}
    for entry in folder.iterdir():
        if entry.is_symlink() and entry.name not in names:
            entry.unlink(missing_ok=True)
    for name in names:
        _link(folder / name, user_home / name)
    if not (folder / LOGS).exists():
        (folder / LOGS).write_text(_WORDS, encoding="utf-8")


def _link(link: Path, target: Path) -> None:
    if link.is_symlink() and link.readlink() == target:
        return
    if link.is_dir() and not link.is_symlink():
        return  # created here before the user's home had this entry
    # Replace the link in one step, because another run may read it.
    fresh = link.with_name(f".{link.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(link)
