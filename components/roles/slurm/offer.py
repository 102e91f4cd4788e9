"""Offer files to slurmctld. If it rejects them, the last accepted ones come back."""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Mapping

from components.node import files
from components.node.files import File
from components.node.log import note
from components.node.run import attempt
from components.node.systemd import is_active
from components.node.waiting import wait_until
from components.roles.slurm import controller
from components.roles.slurm.merge import merged
from components.roles.slurm.paths import BASE, CONF, TAKEN


def offer(base: str = BASE, names: Collection[str] = ()) -> str:
    """Give slurmctld the files made from a folder if one of the named ones has changed (default: all).

    Return why slurmctld rejects them; empty if it accepts them. Its errors are then in the log, and it has its last
    accepted files.
    """
    begin = int(time.time())
    texts = merged(base)
    _write(CONF, texts)
    reason = ""
    if not is_active("slurmctld"):
        reason = controller.start() or _await()
    elif _changed(names or texts):
        reason = controller.reconfigure() or _await()
    if reason:
        sys.stderr.writelines(f"{line}\n" for line in controller.errors(begin))
        _restore()
        return reason
    _write(TAKEN, texts)
    return ""


def _write(folder: str, texts: Mapping[str, str]) -> None:
    files.write_all([File(f"{folder}/{name}", text) for name, text in texts.items()])


def _changed(names: Collection[str]) -> bool:
    for name in names:
        text = files.read(f"{CONF}/{name}")
        if text is None or text != files.read(f"{TAKEN}/{name}"):
            return True
    return False


def _await() -> str:
    # slurmctld has read its files once it answers.
    return "" if wait_until(controller.answers, 120) else "slurmctld does not answer"


def _restore() -> None:
    names = [name for name in files.names_in(TAKEN) if not name.startswith(".")]
    if not names:
        return
    _write(CONF, {name: files.read(f"{TAKEN}/{name}") or "" for name in names})
    if not is_active("slurmctld") and not attempt("systemctl", "restart", "slurmctld").ok:
        note("slurmctld does not start with the old files")
    if not wait_until(controller.answers, 60):
        note("slurmctld does not answer with the old files either")
