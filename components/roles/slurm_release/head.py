"""Provide the release's packages and source on the share, and install them here before any node does."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.artifacts import Artifact, keep_artifact
from components.node.step.step import Step
from components.roles.slurm_release.build import build_release
from components.roles.slurm_release.install import install_release
from components.roles.slurm_release.ready_packages import keep_ready_packages
from components.roles.slurm_release.release import SHARED, Release, ReleaseValues, has_release

_KEYS = ("tailrack:slurm.release_source", "tailrack:slurm.release_sha256")


@dataclass(frozen=True)
class SourceValues(ReleaseValues):
    """The release, and where it comes from and goes to.

    slurm_release_from   where the source comes from: an address, or a path on the head node
    nfs_exports_path     directory of the share
    """

    slurm_release_from: str
    nfs_exports_path: str


@dataclass(frozen=True)
class HeadValues(SourceValues):
    """The release, and the head node.

    head_computes        whether the head node runs jobs too
    accounting_enabled   whether accounting is on
    """

    head_computes: bool
    accounting_enabled: bool


def head(step: Step, values: HeadValues) -> None:
    """Provide and install the release."""
    release, folder = provide(step, values)
    names = ["slurm-smd", "slurm-smd-client", "slurm-smd-dev", "slurm-smd-slurmctld"]
    names += ["slurm-smd-slurmd"] if values.head_computes else []
    names += ["slurm-smd-slurmdbd"] if values.accounting_enabled else []
    install_release(step, release, folder, names)


def provide(step: Step, values: SourceValues) -> tuple[Release, str]:
    """Put the packages and the source on the share. Return the release and its folder for this machine."""
    share = f"{values.nfs_exports_path}/{SHARED}"
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
