"""Remove the copies of data sets. Jobs have ended before."""

from __future__ import annotations

from components.node import files, systemd
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.datasets import account, paths
from components.roles.datasets.compute import remove_node
from components.roles.datasets.feature import ROLE
from components.roles.datasets.services import remove_head
from components.roles.datasets.versions import Home, homes
from components.roles.slurm.live_features import FOLDER


def leave(step: Step) -> None:
    """Stop copying and serving, and remove the copies."""
    do_each(
        lambda: systemd.retire(
            paths.HEAD_TIMER, paths.HEAD, paths.STAGE_TIMER, paths.STAGE, paths.SOCKET, paths.SERVER
        ),
        *(lambda home=home: _remove(home) for home in homes()),
        remove_head,
        remove_node,
    )
    for path in (paths.STAGE_PROGRAM, paths.HEAD_PROGRAM, paths.FILES_PROGRAM, f"{FOLDER}/{ROLE}"):
        files.remove(path)
    files.remove_if_empty(FOLDER)


def _remove(home: Home) -> None:
    home.remove_link()
    for name in files.names_in_any(home.base):
        account.remove(f"{home.base}/{name}")
    home.remove_all()
