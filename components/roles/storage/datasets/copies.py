"""One data set on a node's disk: its versions, a copy of the present one, and the jobs that may use the last one.

`<folder>/.tailrack-data/<name>/<version>` is a complete version, `<version>.part` one that is being copied, both of the
account. `<folder>/<name>` is a link of root's to the present version.
"""

import hashlib
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from time import time

from components.node import files, folders
from components.node.daemons import free_bytes
from components.node.failure import Failure
from components.node.kernel import mounts
from components.node.log import note, printable
from components.node.run import Ended
from components.roles.storage.datasets import model, programs, serve
from components.slurm_commands import slurm

FOLDERS, MADE = f"{model.STATE}/folders", f"{model.STATE}/made"
# A file for each version that was replaced, whose time is the moment, and for each data set to read again.
_REPLACED, VERIFY = f"{model.STATE}/replaced", f"{model.STATE}/verify"
_VERSIONS, _RUN = ".tailrack-data", "/run/tailrack-data"
_NETWORK = re.compile(r"nfs|cifs|smb|ceph|lustre|9p|fuse\.sshfs|gpfs|beegfs")
_JOB_STATES = "RUNNING,SUSPENDED,COMPLETING,CONFIGURING,STOPPED,SIGNALING,STAGE_OUT"
# All files are read again after a week.
_CHECK_SECONDS = 7 * 86400
# rsync's exit statuses: the server does not answer.
_SILENT = (10, 35)


@dataclass(frozen=True)
class Home:
    """The folders of one data set."""

    folder: str
    name: str

    @property
    def base(self) -> str:
        return f"{self.folder}/{_VERSIONS}/{self.name}"

    @property
    def link(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def pointed(self) -> str:
        """Return the complete version that the link leads to; empty without one."""
        if folders.kind_of(self.link) != stat.S_IFLNK:
            return ""
        version = Path(files.on_disk(self.link)).readlink().name
        return version if version in self.versions() else ""

    def sums(self, version: str) -> str:
        """Return the file with the sums of a complete version, whose time is that of the last check."""
        return f"{model.HERE}/{model.list_name(self.name, version)}"

    def names(self) -> list[str]:
        """Return the names of all versions, and of parts of them."""
        return folders.names_in_any(self.base) if files.is_folder(self.base) else []

    def versions(self) -> list[str]:
        """Return the names of complete versions."""
        return [name for name in self.names() if model.VERSION.fullmatch(name)]

    def make(self, host: str) -> None:
        """Make the folders. Raises Failure if another account could replace them, or if the disk is not local."""
        path = PurePosixPath(self.folder)
        above = [mount for mount in mounts() if path.is_relative_to(mount.target)]
        best = max(above, key=lambda mount: len(mount.target), default=None)
        if best and _NETWORK.match(best.type):
            reason = f"{self.folder} on {host} is on a network file system ({best.source})"
            raise Failure(reason, "set tailrack:datasets[].folder to a folder on a local disk, then run up again")
        for folder in (self.folder, f"{self.folder}/{_VERSIONS}"):
            if not files.exists(folder):
                # Note the folder before creating it, so that an interrupted run leaves no unknown folder.
                files.add_line(MADE, folder)
                files.make_folder(folder)
        files.add_line(FOLDERS, self.folder)
        folders.give(model.ACCOUNT, 0o755, self.base)
        if folders.kind_of(self.link) not in (0, stat.S_IFLNK):
            raise Failure(
                f"{self.link} exists on {host} and was not made by tailrack",
                f"move it away, or set another folder or name in tailrack:datasets ('ls -ld {self.link}' on {host})",
            )

    def change(self, *words: str) -> None:
        """Run a program that changes the folders, as the account."""
        ended = programs.output(*words, limit=600)
        if not ended.ok:
            raise Failure(f"cannot change {self.base}: {programs.reason(ended)}", f"see 'df -h {self.folder}'")

    def used(self, name: str) -> int:
        """Return the bytes on the disk of a version, or of a part of one."""
        ended = programs.output("du", "-s", "-B1", "--", files.on_disk(f"{self.base}/{name}"), limit=600)
        size = ended.output.split("\t")[0]
        return int(size) if size.isdecimal() else 0

    def remove_link(self) -> None:
        if folders.kind_of(self.link) == stat.S_IFLNK:
            files.remove(self.link)

    def remove(self, *names: str) -> None:
        """Remove versions, or parts of them, and empty folders."""
        for name in names:
            programs.output("rm", "-rf", "--", files.on_disk(f"{self.base}/{name}"))
            files.remove(self.sums(name))
            files.remove(f"{_REPLACED}/{self.name}.{name}")
        if not self.names() and (files.remove_if_empty(self.base) or not files.exists(self.base)):
            files.remove_if_empty(f"{self.folder}/{_VERSIONS}")


def homes() -> list[Home]:
    """Return the data sets that have folders on this node."""
    above = [folder for folder in files.lines(FOLDERS) if folder]
    return [Home(folder, name) for folder in above for name in files.names_in(f"{folder}/{_VERSIONS}")]


def oldest_job(node: str) -> float | None:
    """Return the start of the oldest job on a node in Unix seconds; infinity without jobs, None if Slurm is silent."""
    filters = ("-w", node, "-t", _JOB_STATES)
    rows = slurm.squeue("%S", *filters, limit=30, environment={"SLURM_TIME_FORMAT": "%s"}, keep_errors=True)
    # A job without a start begins now.
    starts = (float(start) if start.isdecimal() else 0.0 for start, *_ in rows or ())
    return min(starts, default=float("inf")) if rows is not None else None


def remove_unused(node: str, present: Mapping[Home, str]) -> None:
    """Remove versions that were replaced, and data sets that are not wanted here, once no job can use them.

    present   the version of each data set that this node should have
    """
    replaced = []
    for home in homes():
        keep, complete = present.get(home), home.versions()
        # Until the new version is complete, the last one stays.
        kept = {keep, home.pointed if keep and keep not in complete else keep}
        home.remove(*(name for name in home.names() if name not in (*complete, f"{keep}.part")))
        for version in complete:
            mark = f"{_REPLACED}/{home.name}.{version}"
            if version in kept:
                files.remove(mark)
                continue
            if not files.exists(mark):
                files.write(mark, "")
            replaced.append((home, version, time() - (files.age_of(mark) or 0.0)))
    oldest = oldest_job(node) if replaced else None
    for home, version, since in replaced:
        if oldest is not None and oldest > since:
            home.remove(version)
            note(f"removed {home.base}/{version}: no job uses it")


@dataclass
class Copy:
    """The present version of one data set, in one pass. `tell` sets the state that others see."""

    node: str
    plan: model.Plan
    one: model.PlannedSet
    tell: Callable[[model.Progress], None]
    source: str = ""

    @property
    def home(self) -> Home:
        return Home(self.one.folder, self.one.name)

    def bring(self) -> None:
        """Do the next part of the work. Raises Failure."""
        version, home = self.one.version, self.home
        if not version:
            # The head node shows why.
            self.source = "the head node's list of the source"
            self._show(model.WAITS)
            return
        home.make(self.node)
        sums, asked = home.sums(version), files.remove(f"{VERIFY}/{self.one.name}")
        if version in home.versions() and not files.exists(sums):
            home.remove(version)
        if version not in home.versions():
            if not self._copy():
                self._show(model.WAITS)
                return
            note(f"{self.one.name} {version} is complete")
        elif asked or (age := files.age_of(sums)) is None or age > _CHECK_SECONDS:
            self._keep_sums(self._fill(f"{home.base}/{version}", self._entries(sums), whole=True))
        if self.one.sums not in ("", digest := _digest(files.read(sums, model.MOST_LIST) or "")):
            home.remove_link()
            home.remove(version)
            raise Failure("the source has changed, or this node's copy is damaged: the sums differ from other nodes'")
        files.link(home.link, f"{_VERSIONS}/{home.name}/{version}")
        self._show(model.COMPLETE, digest)

    def _show(self, state: str, sums: str = "") -> None:
        self.tell(model.Progress(self.one.version, state, "", self.source, sums))

    def _entries(self, path: str) -> list[model.Entry]:
        try:
            return model.read_entries(files.read(path, model.MOST_LIST) or "")
        except (ValueError, TypeError):
            raise Failure(f"{path} is malformed", "see 'journalctl -u tailrack-data-head' on the head node") from None

    def _keep_sums(self, entries: Sequence[model.Entry]) -> None:
        path = self.home.sums(self.one.version)
        # Writing the same text would not change the file's time.
        files.remove(path)
        files.write(path, model.write_entries(entries), 0o640, "root", model.ACCOUNT)

    def _copy(self) -> bool:
        """Return whether the copy is complete."""
        way = self._way()
        entries = self._entries(f"{model.FROM_HEAD}/{model.list_name(self.one.name, self.one.version)}")
        if way is None or not entries:
            return False
        if way == self._from_peer and (found := self._sums_of_peer()):
            entries = found
        self._require_room()
        path = f"{self.home.base}/{self.one.version}"
        self.home.change("mkdir", "-p", files.on_disk(f"{path}.part"))
        self._keep_sums(self._fill(f"{path}.part", self._link_unchanged(f"{path}.part", entries)))
        # After a power cut, no file of a complete version may be empty.
        self.home.change("sync", "-f", files.on_disk(f"{path}.part"))
        self.home.change("mv", "-T", files.on_disk(f"{path}.part"), files.on_disk(path))
        return True

    def _sums_of_peer(self) -> list[model.Entry]:
        """Return the sums that the head node vouches for, from a node that has them."""
        folder, name = f"{_RUN}/peer", model.list_name(self.one.name, self.one.version)
        files.make_folder(_RUN, 0o750, group=model.ACCOUNT)
        serve.pull(self.plan.nodes[self.source].address, "state", folder, only=name)
        text = files.read(f"{folder}/{name}", model.MOST_LIST) or ""
        files.remove_folder(folder)
        if _digest(text) != self.one.sums:
            raise Failure(f"{self.source} does not give its list of sums")
        return model.read_entries(text)

    def _way(self) -> Callable[[str, str], Ended] | None:
        """Return the function that copies from the best place; None while this node has to wait."""
        site = self.plan.nodes[self.node].site
        peers = [name for name in self.one.complete if name != self.node and self.plan.nodes[name].site == site]
        if peers:
            # Nodes take different peers.
            self.source = peers[sum(self.node.encode()) % len(peers)]
            return self._from_peer
        # The only node with a complete copy gets damaged files from the source too.
        if self.node in (self.one.fetchers.get(site), *self.one.complete):
            self.source = "the source"
            return self._from_source
        self.source = self.one.fetchers.get(site, "")
        return None

    def _require_room(self) -> None:
        folder, free, part = self.one.folder, free_bytes(self.one.folder), f"{self.one.version}.part"
        need = max(self.one.bytes - (self.home.used(part) if part in self.home.names() else 0), 0)
        if free - need < self.plan.reserve:
            raise Failure(
                f"the disk of {folder} on {self.node} is full: {model.size_text(need)} are needed, "
                f"{model.size_text(free)} are free, of which {model.size_text(self.plan.reserve)} stay free "
                "(tailrack:staging.reserve_gb)",
                f"make room on {self.node} ('df -h {folder}'), or set another folder",
            )

    def _link_unchanged(self, part: str, entries: list[model.Entry]) -> list[model.Entry]:
        """Link the files that did not change since the last version. Return the entries, with the sums of these."""
        old = self.home.pointed
        sums = {entry.key: entry.sum for entry in self._entries(self.home.sums(old))} if old else {}
        if same := [entry for entry in entries if entry.key in sums]:
            programs.link_files(f"{self.home.base}/{old}", part, self._write_paths(same, "./"))
        return [replace(entry, sum=entry.sum or sums.get(entry.key, "")) for entry in entries]

    def _fill(self, folder: str, entries: list[model.Entry], *, whole: bool = False) -> list[model.Entry]:
        """Copy files until all fit their sizes and sums, and return them with their sums.

        whole   the folder should be complete already
        """
        bad = [] if whole else entries
        for _ in range(3 if whole else 2):
            if bad:
                self._run(folder, bad)
            self._show(model.SUMS)
            read = programs.sums_of(folder, entries)
            bad = [entry for entry, have in zip(entries, read, strict=True) if have.size < 0]
            if not bad:
                return read
            note(f"{self.one.name}: {len(bad)} files are missing or damaged, such as {bad[0].path!r}")
            # A program that finds a file of the right size and time would keep it.
            names = "".join(f"{files.on_disk(folder)}/{entry.path}\0" for entry in bad)
            programs.output("xargs", "-0", "rm", "-f", "--", stdin=names)
        path = printable(bad[0].path, 100)
        raise Failure(
            f"{len(bad)} files do not fit their sums, such as {path}: the source has changed or is damaged",
            "run 'systemctl start tailrack-data-head' on the head node once the source is whole",
        )

    def _run(self, folder: str, entries: Sequence[model.Entry]) -> None:
        way = self._way()
        if way is None:
            raise Failure(f"{len(entries)} files are damaged, and no other node has them yet")
        self._show(model.COPIES)
        by_rsync = self.one.kind == "share" or way == self._from_peer
        ended = way(folder, self._write_paths(entries, "./" if by_rsync else ""))
        if ended.ok:
            return
        remedy = f"see 'journalctl -u tailrack-data-stage' on {self.node}; the node tries again"
        if "no space left" in ended.errors.lower():
            remedy = f"make room on {self.node} ('df -h {self.one.folder}')"
        elif self.source == "the source" and self.one.kind in ("s3", "hf"):
            remedy = "check the keys of this source in tailrack:datasets; the node tries again"
        raise Failure(f"cannot copy from {self.source}: {programs.reason(ended)}", remedy)

    def _write_paths(self, entries: Sequence[model.Entry], prefix: str) -> str:
        """Write the paths to a file. For rsync, `#file` would be a comment, and `./#file` is none."""
        path = f"{_RUN}/{self.one.name}.paths"
        files.make_folder(_RUN, 0o750, group=model.ACCOUNT)
        files.write(path, "\n".join(f"{prefix}{entry.path}" for entry in entries), 0o640, "root", model.ACCOUNT)
        return path

    def _from_peer(self, folder: str, paths: str) -> Ended:
        ended = Ended(1, "")
        for address, port in addresses(self.plan.nodes[self.node], self.plan.nodes[self.source]):
            place = serve.url(address, port, f"set-{self.one.name}/{self.one.version}")
            ended = programs.rsync_copy(place, folder, paths, self.plan.rate)
            # A node that has just joined is refused until the peer has read the plan: the next pass tries again.
            if ended.status not in _SILENT:
                break
        return ended

    def _from_source(self, folder: str, paths: str) -> Ended:
        if self.one.kind == "share":
            place = serve.url(self.plan.head, model.PORT, f"source-{self.one.name}")
            return programs.rsync_copy(place, folder, paths, self.plan.rate)
        config = f"{_RUN}/{self.one.name}.conf"
        programs.write_config(config, files.read(f"{model.FROM_HEAD}/remote.{self.one.name}") or "")
        try:
            return programs.rclone_copy(config, folder, paths, self.plan.rate)
        finally:
            files.remove(config)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def addresses(mine: model.Member, theirs: model.Member) -> list[tuple[str, int]]:
    """Return the addresses and ports of another node: on the best network that both have, then on the tailnet."""
    groups = {group for group, _, _ in mine.fabric}
    shared = sorted(((rank, address) for group, rank, address in theirs.fabric if group in groups), reverse=True)
    return [*((address, model.FABRIC_PORT) for _, address in shared[:1]), (theirs.address, model.PORT)]
