"""Remove the copies of data sets. Jobs have ended before."""

from __future__ import annotations

from components.node import files, systemd
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.datasets import model, serve
from components.roles.datasets.compute import ROLE, remove_node
from components.roles.datasets.copies import Home, homes
from components.roles.datasets.services import remove_head
from components.roles.slurm.live_features import FOLDER


def leave(step: Step) -> None:
    """Stop copying and serving, and remove the copies."""
    units = (model.HEAD_TIMER, model.HEAD, model.STAGE_TIMER, model.STAGE, serve.SOCKET, serve.SERVER)
    do_each(lambda: systemd.retire(*units), *(lambda home=home: _remove(home) for home in homes()))
    do_each(remove_head, remove_node)
    for path in (model.STAGE_PROGRAM, model.HEAD_PROGRAM, model.FILES_PROGRAM, f"{FOLDER}/{ROLE}"):
        files.remove(path)
    files.remove_if_empty(FOLDER)


def _remove(home: Home) -> None:
    home.remove_link()
    home.remove(*home.names())
