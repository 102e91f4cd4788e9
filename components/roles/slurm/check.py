"""Check Slurm's version, installed or available, and whether systemd can confine jobs with cgroups."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from components.node import files
from components.node.failure import Failure
from components.node.packages import refresh_lists_now, versions_of
from components.node.step.step import Step
from components.roles.slurm.foreign_files import foreign_slurm_files
from components.roles.slurm.releases import ADVISED, one_release_remedy
from components.roles.slurm_release.install import INSTALLED

_SLURM, _MPI = "slurmd", "openmpi-bin"
_PMIX = ("libpmix2t64", "libpmix2")
_CONTROLLERS = {"memory", "cpuset"}


@dataclass(frozen=True)
class Release:
    """The config's release, empty for the distribution's."""

    slurm_release: str


def check(step: Step, values: Release) -> None:
    """Report the version, the MPI library and whether cgroups work, and files of another cluster."""
    step.foreign += _foreign()
    release = values.slurm_release
    if not release and files.exists(INSTALLED):
        raise Failure(
            "this machine has a Slurm release that the config no longer names "
            f"({(files.read(INSTALLED) or '').strip()})",
            "set tailrack:slurm.release again, because the distribution's Slurm is no upgrade of it; or take "
            f"{step.host} out of the cluster, run 'apt-get purge slurm-smd*' there, and add it again",
        )
    versions = versions_of((_SLURM, _MPI, *_PMIX))
    if (_MPI if release else _SLURM) not in versions:
        refresh_lists_now(step.host)
        versions = versions_of((_SLURM, _MPI, *_PMIX))
    version = release or versions.get(_SLURM)
    if not version:
        raise Failure(
            "no package source of this machine has slurmd",
            f"add Debian's or Ubuntu's (universe) package source, or {one_release_remedy(ADVISED)}",
        )
    step.result("cgroups", _cgroups_delegated())
    step.result("mpi", _mpi(versions))
    step.result("slurm_version", version)


def _foreign() -> Iterator[str]:
    for path in foreign_slurm_files():
        name = re.search(r"^\s*ClusterName=(\S+)", files.read(path) or "", re.MULTILINE | re.IGNORECASE)
        yield f"{path} of cluster {name[1]}" if name else path


def _mpi(versions: Mapping[str, str]) -> str:
    """Return the launch library of MPI jobs, such as 5-pmix5: the major versions of Open MPI and PMIx.

    Slurm names its PMIx plugins by that number, and srun asks all nodes of a job for its own. Return an empty text if
    no source has Open MPI.
    """
    mpi = _major(versions.get(_MPI, ""))
    pmix = next(filter(None, (_major(versions.get(name, "")) for name in _PMIX)), "")
    return f"{mpi}-pmix{pmix}" if mpi and pmix else mpi


def _major(version: str) -> str:
    major = version.partition(":")[2] or version
    major = major.partition(".")[0]
    return major if re.fullmatch(r"[1-9][0-9]?", major) else ""


def _cgroups_delegated() -> bool:
    """Return whether systemd's own cgroup has the controllers that Slurm needs.

    Slurm uses the unified hierarchy only: slurmd exits if others are mounted ("Hybrid mode is not supported").
    """
    try:
        own = Path(files.on_disk("/proc/1/cgroup")).read_text(encoding="utf-8").partition("\n")[0]
        cgroup = own.removeprefix("0::").removesuffix("/init.scope")
        controllers = Path(files.on_disk(f"/sys/fs/cgroup{cgroup}/cgroup.controllers")).read_text(encoding="utf-8")
    except OSError:
        return False
    return own.startswith("0::/") and set(controllers.split()) >= _CONTROLLERS
