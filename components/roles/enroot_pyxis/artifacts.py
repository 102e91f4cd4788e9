"""Enroot's and Pyxis' files, which all nodes take from the share."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from components.node import files
from components.node.artifacts import take_artifact
from components.node.run import run
from components.node.step.step import STATE_DIR

# Root's state.
CONTAINERS = f"{STATE_DIR}/containers"
# A folder of the share that only the head node's root can write (root_squash).
SHARED = "containers"
_WORK = f"{CONTAINERS}/work"
# Seconds, enough for an image of any size.
_COPY_LIMIT = 3600


@dataclass(frozen=True)
class ContainerFile:
    """A file by its checksum, and its address; without one, the step carries it."""

    name: str
    digest: str
    address: str = ""


@dataclass(frozen=True)
class FilesValues:
    """The files, and the mount point of the share."""

    enroot_pyxis_artifacts: list[ContainerFile]
    nfs_exports_mount: str

    def ending_in(self, pattern: str) -> list[ContainerFile]:
        """Return the files whose name ends in a pattern."""
        return [file for file in self.enroot_pyxis_artifacts if re.search(f"{pattern}$", file.name)]

    def take(self, wanted: list[ContainerFile], folder: str) -> list[str]:
        """Copy files from the share into a folder of root's, and return their paths."""
        for file in wanted:
            take_artifact(f"{self.nfs_exports_mount}/{SHARED}/artifacts/{file.name}", folder, file.digest)
        return [files.on_disk(f"{folder}/{file.name}") for file in wanted]


@contextmanager
def work_folder() -> Iterator[str]:
    """Make an empty folder that only root can enter, and remove it afterwards."""
    files.remove_folder(_WORK)
    files.make_folder(_WORK, 0o700)
    try:
        yield _WORK
    finally:
        files.remove_folder(_WORK)


def place_copy(source: str, to: str, mode: int = 0o644) -> None:
    """Copy a file to a path in a folder of root's, whole or not at all."""
    folder, _, name = to.rpartition("/")
    if not files.is_folder(folder):
        files.make_folder(folder)
    fresh = f"{folder}/.{name}.new"
    files.remove(fresh)
    run("cp", "--", source, files.on_disk(fresh), limit=_COPY_LIMIT)
    files.set_mode(fresh, mode)
    files.rename(fresh, to)
