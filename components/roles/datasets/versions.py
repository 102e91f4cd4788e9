"""The folders of a data set on a node.

`<folder>/.tailrack-data/<name>/<version>` is a complete version, `<version>.part` one that is being copied, both of the
account. `<folder>/<name>` is a link of root's to the present version.
"""

from __future__ import annotations

import re
import stat
from dataclasses import dataclass
from pathlib import PurePosixPath

from components.node import files, folders
from components.node.failure import Failure
from components.node.mounts import mounts
from components.roles.datasets import account
from components.roles.datasets.model import VERSION
from components.roles.datasets.paths import ACCOUNT, FOLDERS, MADE, VERSIONS

_NETWORK = re.compile(r"nfs|cifs|smb|ceph|lustre|9p|fuse\.sshfs|gpfs|beegfs")


@dataclass(frozen=True)
class Home:
    """The folders of one data set."""

    folder: str
    name: str

    @property
    def above(self) -> str:
        return f"{self.folder}/{VERSIONS}"

    @property
    def base(self) -> str:
        return f"{self.above}/{self.name}"

    @property
    def link(self) -> str:
        return f"{self.folder}/{self.name}"

    def version(self, version: str) -> str:
        return f"{self.base}/{version}"

    def part(self, version: str) -> str:
        return f"{self.base}/{version}.part"

    def make(self, host: str) -> None:
        """Make the folders. Raises Failure if another account could replace them, or if the disk is not local."""
        _require_local(self.folder, host)
        for path in (self.folder, self.above):
            if not files.exists(path):
                # Note the folder before creating it, so that an interrupted run leaves no unknown folder.
                files.add_line(MADE, path)
                files.make_folder(path)
        files.add_line(FOLDERS, self.folder)
        folders.give(ACCOUNT, 0o755, self.base)
        kind = files.kind_of(self.link)
        if kind not in (0, stat.S_IFLNK):
            raise Failure(
                f"{self.link} exists on {host} and was not made by tailrack",
                f"move it away, or set another folder or name in tailrack:datasets ('ls -ld {self.link}' on {host})",
            )

    def versions(self) -> list[str]:
        """Return the names of complete versions."""
        return [name for name in self._names() if VERSION.fullmatch(name)]

    def parts(self) -> list[str]:
        """Return the versions that are being copied."""
        return [name.removesuffix(".part") for name in self._names() if name.endswith(".part")]

    def _names(self) -> list[str]:
        return files.names_in_any(self.base) if files.is_folder(self.base) else []

    def begin(self, version: str) -> str:
        """Make the folder of a version that is to be copied, and return it."""
        path = self.part(version)
        self._as_account("mkdir", "-p", files.on_disk(path))
        return path

    def complete(self, version: str) -> None:
        """Give a copied version its name. From then on, other nodes and jobs use it."""
        self._as_account("mv", "-T", files.on_disk(self.part(version)), files.on_disk(self.version(version)))

    def _as_account(self, *words: str) -> None:
        ended = account.output(*words, limit=60)
        if not ended.ok:
            raise Failure(f"cannot change {self.base}: {account.reason(ended)}", f"see 'df -h {self.folder}'")

    def point_to(self, version: str) -> bool:
        """Make the link lead to a version; return whether it changed."""
        return files.link(self.link, f"{VERSIONS}/{self.name}/{version}")

    def remove_link(self) -> None:
        if files.kind_of(self.link) == stat.S_IFLNK:
            files.remove(self.link)

    def remove(self, name: str) -> None:
        """Remove a version, or a part of one."""
        account.remove(f"{self.base}/{name}")

    def remove_all(self) -> None:
        """Remove the empty folders."""
        if files.remove_if_empty(self.base) or not files.exists(self.base):
            files.remove_if_empty(self.above)


def _require_local(folder: str, host: str) -> None:
    path = PurePosixPath(folder)
    best = max(
        (mount for mount in mounts() if path.is_relative_to(mount.target)),
        key=lambda mount: len(mount.target),
        default=None,
    )
    if best and _NETWORK.match(best.type):
        raise Failure(
            f"{folder} on {host} is on a network file system ({best.source})",
            "set tailrack:datasets[].folder to a folder on a local disk, then run up again",
        )


def homes() -> list[Home]:
    """Return the data sets that have folders on this node."""
    return [
        Home(folder, name)
        for folder in filter(None, files.lines(FOLDERS))
        for name in files.names_in(f"{folder}/{VERSIONS}")
    ]
