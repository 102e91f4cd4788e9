"""One release of Slurm on all machines, checked before any change: the controller must read the installed one's state.

Packages come from the head node if it has this kind of machine, or are built here; never from another node, because
root runs them.
"""

from dataclasses import dataclass

from components.node import files
from components.node.artifacts import Artifact, keep_artifact, take_artifact
from components.node.failure import Failure
from components.node.folders import read_theirs
from components.node.log import STATE_DIR, note
from components.node.passwd import user_named
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.slurm.slurm.folders import CONTROLLER_STATE
from components.roles.slurm.slurm.versions import NEEDED, RELEASES, is_older, oldest_accepted, release_of, upstream_of
from components.roles.slurm.slurm_release.build import BUILD_USER, build_release
from components.roles.slurm.slurm_release.install import BUILT, OURS, PIN, install_release, installed_packages
from components.roles.slurm.slurm_release.release import (
    SHARED,
    Release,
    ReleaseValues,
    has_release,
    keep_ready_packages,
    take_ready_packages,
)
from components.slurm_commands import slurm

_LIMIT = 20
_KEYS = ("tailrack:slurm.release_source", "tailrack:slurm.release_sha256")
_SOURCE = f"{STATE_DIR}/slurm-source"
_PACKAGES = ("slurm-smd", "slurm-smd-client", "slurm-smd-dev", "slurm-smd-slurmd", "slurm-smd-libpam-slurm-adopt")


def check_head(step: Step, slurm_release: str) -> None:
    """Check the controller and its nodes."""
    if read_theirs(f"{CONTROLLER_STATE}/clustername") is None:
        return
    current = upstream_of(_installed_controller())
    if not current:
        return
    wanted, oldest = slurm_release, oldest_accepted(slurm_release)
    if is_older(wanted, current):
        raise Failure(
            f"the cluster has Slurm {current}, and the config names {wanted}, which cannot read the newer release's "
            "state",
            f"set tailrack:slurm.release to {current} or newer",
        )
    if is_older(release_of(current), oldest):
        upgrades = [each for each in RELEASES if each >= NEEDED and release_of(current) >= oldest_accepted(each)]
        raise Failure(
            f"Slurm {wanted} reads the state of {oldest} and newer, and the cluster has {current}",
            f"upgrade by way of {upgrades[-1] if upgrades else ''}: set tailrack:slurm.release to a release of it, run "
            "up, then set this one",
        )
    _refuse_old_nodes(wanted, oldest)
    if current != wanted:
        note(f"upgrading Slurm {current} to {wanted}; jobs continue")


def _refuse_old_nodes(wanted: str, oldest: str) -> None:
    # A node that has never registered has no version.
    for node, *versions in slurm.sinfo("%N %v", "-N", limit=_LIMIT, quiet=True) or ():
        version = "".join(versions)
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


@dataclass(frozen=True)
class HeadValues(ReleaseValues):
    """The release, where it comes from and goes to, and the head node.

    slurm_release_from   where the source comes from: an address, or a path on the head node
    share_path           directory of the share
    head_computes        whether the head node runs jobs too
    accounting_enabled   whether accounting is on
    """

    slurm_release_from: str
    share_path: str
    head_computes: bool
    accounting_enabled: bool


def head(step: Step, values: HeadValues) -> None:
    """Provide and install the release."""
    release, folder = provide(step, values)
    names = ["slurm-smd", "slurm-smd-client", "slurm-smd-dev", "slurm-smd-slurmctld"]
    names += ["slurm-smd-slurmd"] if values.head_computes else []
    names += ["slurm-smd-slurmdbd"] if values.accounting_enabled else []
    install_release(step, release, folder, names)


def provide(step: Step, values: HeadValues) -> tuple[Release, str]:
    """Put the packages and the source on the share. Return the release and its folder for this machine."""
    share = f"{values.share_path}/{SHARED}"
    # Root owns their parents, so no other account can replace these folders.
    files.make_folder(share)
    files.make_folder(f"{share}/source")
    release = Release(step.host, values, keep_ready_packages(step, values, share))
    source = f"{share}/source/{values.source_name}"
    if values.slurm_release_sha256:
        keep_artifact(step, source, Artifact(values.slurm_release_sha256, values.slurm_release_from, *_KEYS))
    folder = f"{share}/{release.folder_name}"
    if not has_release(folder):
        release.refuse_without_source()
        build_release(release, source, folder)
    return release, folder


@dataclass(frozen=True)
class NodeValues(ReleaseValues):
    """The release, and where the share is mounted."""

    share_mount: str


def node(step: Step, values: NodeValues) -> None:
    """Install the release."""
    share = f"{values.share_mount}/{SHARED}"
    release = Release(step.host, values, take_ready_packages(values, share))
    folder = f"{share}/{release.folder_name}"
    if not has_release(folder):
        folder = f"{BUILT}/{release.folder_name}"
        if not has_release(folder):
            note(f"the head node has no packages for {release.folder_name}")
            release.refuse_without_source()
            files.make_folder(_SOURCE, 0o700)
            take_artifact(f"{share}/source/{values.source_name}", _SOURCE, values.slurm_release_sha256)
            build_release(release, f"{_SOURCE}/{values.source_name}", folder)
            files.remove_folder(_SOURCE)
    install_release(step, release, folder, _PACKAGES)


def leave(step: Step) -> None:
    """Remove what keeps the release, and the rest of an interrupted build."""
    if user_named(BUILD_USER):
        attempt("pkill", "-KILL", "-u", BUILD_USER)
        attempt("userdel", BUILD_USER)
    if not files.exists(PIN):
        return
    if ours := installed_packages().get(OURS):
        attempt("apt-mark", "unhold", *ours)
    files.remove(PIN)
