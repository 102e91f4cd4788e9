"""Check that this cluster can have the release, before any change.

The controller must read the state of the installed one, and accept nodes that still have the old release.
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node.failure import Failure
from components.node.folders import read_theirs
from components.node.log import note
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.slurm.folder import CONTROLLER_STATE
from components.roles.slurm.releases import is_older, release_of, upstream_of

_LIMIT = 20


@dataclass(frozen=True)
class Window:
    """A release, and the oldest one whose state and nodes it accepts."""

    release: str
    oldest: str


@dataclass(frozen=True)
class WindowValues:
    """The release that the machine will have, and what each release accepts."""

    slurm_release: str
    slurm_release_windows: list[Window]


def check_head(step: Step, values: WindowValues) -> None:
    """Check the controller and its nodes."""
    if read_theirs(f"{CONTROLLER_STATE}/clustername") is None:
        return
    current = upstream_of(_installed_controller())
    if not current:
        return
    wanted, windows = values.slurm_release, values.slurm_release_windows
    oldest = next((window.oldest for window in windows if window.release == release_of(wanted)), "")
    if is_older(wanted, current):
        raise Failure(
            f"the cluster has Slurm {current}, and the config names {wanted}, which cannot read the newer release's "
            "state",
            f"set tailrack:slurm.release to {current} or newer",
        )
    if is_older(release_of(current), oldest):
        upgrades = [window.release for window in windows if not is_older(release_of(current), window.oldest)]
        raise Failure(
            f"Slurm {wanted} reads the state of {oldest} and newer, and the cluster has {current}",
            f"upgrade by way of {upgrades[-1] if upgrades else ''}: set tailrack:slurm.release to a release of it, run "
            "up, then set this one",
        )
    _refuse_old_nodes(wanted, oldest)
    if current != wanted:
        note(f"upgrading Slurm {current} to {wanted}; jobs continue")


def _refuse_old_nodes(wanted: str, oldest: str) -> None:
    listed = attempt("sinfo", "-h", "-N", "-o", "%N %v", limit=_LIMIT, quiet=True).output
    for node, _, version in (line.strip().partition(" ") for line in listed.splitlines()):
        if version[:1].isdigit() and is_older(release_of(version), oldest):
            raise Failure(
                f"node {node} has Slurm {version}, and a controller of {wanted} accepts {oldest} and newer",
                f"upgrade {node} to the cluster's release first (up of its stack), or remove it",
            )


def _installed_controller() -> str:
    """Return the version of the controller's package; empty if none is installed."""
    query = ("dpkg-query", "-W", "-f=${db:Status-Status} ${Version}\\n", "slurmctld", "slurm-smd-slurmctld")
    rows = (line.split() for line in attempt(*query, quiet=True).output.splitlines())
    return next((row[1] for row in rows if row[:1] == ["installed"]), "")
