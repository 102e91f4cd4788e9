"""Install the release on a node: packages from the head node if it has this kind of machine, or packages built here.

Never another node's packages, because root runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.artifacts import take_artifact
from components.node.log import note
from components.node.step.step import STATE_DIR, Step
from components.roles.slurm_release.build import build_release
from components.roles.slurm_release.install import BUILT, install_release
from components.roles.slurm_release.ready_packages import take_ready_packages
from components.roles.slurm_release.release import SHARED, Release, ReleaseValues, has_release

_SOURCE = f"{STATE_DIR}/slurm-source"
_PACKAGES = ("slurm-smd", "slurm-smd-client", "slurm-smd-dev", "slurm-smd-slurmd", "slurm-smd-libpam-slurm-adopt")


@dataclass(frozen=True)
class NodeValues(ReleaseValues):
    """The release, and where the share is mounted."""

    nfs_exports_mount: str


def node(step: Step, values: NodeValues) -> None:
    """Install the release."""
    share = f"{values.nfs_exports_mount}/{SHARED}"
    release = Release(step.host, values, take_ready_packages(values, share))
    folder = f"{share}/{release.folder_name}"
    if not has_release(folder):
        folder = f"{BUILT}/{release.folder_name}"
        if not has_release(folder):
            note(f"the head node has no packages for {release.folder_name}")
            release.refuse_without_source()
            _build(release, values, share, folder)
    install_release(step, release, folder, _PACKAGES)


def _build(release: Release, values: NodeValues, share: str, folder: str) -> None:
    files.make_folder(_SOURCE, 0o700)
    take_artifact(f"{share}/source/{values.source_name}", _SOURCE, values.slurm_release_sha256)
    build_release(release, f"{_SOURCE}/{values.source_name}", folder)
    files.remove_folder(_SOURCE)
