"""Packages that were built elsewhere.

The head node copies them to the share, and every machine compares them with the one list whose checksum is in the
config.
"""

from __future__ import annotations

from collections.abc import Mapping

from components.node import files
from components.node.artifacts import Artifact, keep_artifact, take_artifact
from components.node.failure import Failure
from components.node.run import run
from components.node.step.step import STATE_DIR, Step
from components.roles.slurm_release.release import PACKAGES, ReleaseValues, Sums, has_release, read_list, sums_text

_KEYS = ("tailrack:slurm.release_packages", "tailrack:slurm.release_packages_sha256")


def keep_ready_packages(step: Step, values: ReleaseValues, folder: str) -> Mapping[str, Sums]:
    """Copy the list and the release's packages for every kind of machine into subfolders of a folder."""
    origin = values.slurm_release_packages
    if not origin:
        return {}
    path = f"{folder}/source/{values.list_name}"
    keep_artifact(step, path, Artifact(values.slurm_release_packages_sha256, f"{origin}/SHA256SUMS", *_KEYS))
    ready = _read(path, values)
    for kind, sums in sorted(ready.items()):
        target = f"{folder}/{values.ready_name(kind)}"
        if has_release(target):
            continue
        _refuse_incomplete(values, kind, sums)
        files.remove_folder(f"{target}.new")
        files.remove_folder(target)
        files.make_folder(f"{target}.new")
        for file, digest in sums.items():
            keep_artifact(step, f"{target}.new/{file}", Artifact(digest, f"{origin}/{kind}/{file}", *_KEYS))
        files.write(f"{target}.new/SHA256SUMS", sums_text(sums))
        run("sync", "-f", f"{target}.new")
        files.rename(f"{target}.new", target)
    return ready


def _refuse_incomplete(values: ReleaseValues, kind: str, sums: Sums) -> None:
    for package in PACKAGES:
        if not any(file.startswith(f"{package}_") for file in sums):
            raise Failure(
                f"SHA256SUMS of {values.slurm_release_packages} has no {package} of {values.slurm_release} for {kind}",
                "add it there (docs/day-2.md lists the packages), then run up again",
            )


def take_ready_packages(values: ReleaseValues, shared: str) -> Mapping[str, Sums]:
    """Return the packages in the share's list, from a copy in a folder of root's."""
    if not values.slurm_release_packages:
        return {}
    folder = f"{STATE_DIR}/slurm-list"
    files.make_folder(folder, 0o700)
    take_artifact(f"{shared}/source/{values.list_name}", folder, values.slurm_release_packages_sha256)
    return _read(f"{folder}/{values.list_name}", values)


def _read(path: str, values: ReleaseValues) -> Mapping[str, Sums]:
    return read_list(files.read(path) or "", values.slurm_release)
