"""Bring one data set to this node: fetch it, or copy it from another node of the site, and compare all sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import time

from components.node import files
from components.node.failure import Failure
from components.node.log import note
from components.node.run import Ended
from components.node.text import printable
from components.node.waiting import within
from components.roles.datasets import account, room
from components.roles.datasets.known import Known
from components.roles.datasets.model import (
    COMPLETE,
    COPIES,
    FETCHES,
    MOST_LIST,
    SUMS,
    WAITS,
    Entry,
    Plan,
    PlannedSet,
    Progress,
    files_name,
    list_name,
    read_entries,
    sums_name,
    write_entries,
)
from components.roles.datasets.paths import ACCOUNT, FROM_HEAD, HERE, LISTS
from components.roles.datasets.transfer import Transfer
from components.roles.datasets.versions import Home

# All files are read again after a week.
_CHECK_SECONDS = 7 * 86400


@dataclass
class Copying:
    """One data set in one pass.

    tell    sets the state that others see
    taken   bytes of the data sets before it on this node
    done    bytes of this one
    """

    node: str
    plan: Plan
    one: PlannedSet
    known: Known
    tell: Callable[[Progress], None]
    taken: int
    done: int = 0
    source: str = ""
    _state: str = WAITS
    _entries: list[Entry] = field(default_factory=list)
    _transfer: Transfer = field(init=False)

    def __post_init__(self) -> None:
        self._transfer = Transfer(
            self.node, self.plan, self.one, self.known, lambda percent: self.show(self._state, percent)
        )

    def bring(self) -> None:
        """Do the next part of the work. Raises Failure."""
        version, home = self.one.version, self.home
        if not version:
            # The head node shows why.
            self.source = "the head node's list of the source"
            self.show(WAITS)
            return
        home.make(self.node)
        row = self.known.of(self.one.name)
        if version in home.versions():
            self.done = self.one.bytes
            if not within(_CHECK_SECONDS, row.checked.get(version, 0.0), time()):
                self._repair(version)
                row.checked[version] = time()
        elif not self._copy(version):
            self.show(WAITS)
            return
        else:
            self.done = self.one.bytes
            files.write(f"{LISTS}/{list_name(self.one.name, version)}", write_entries(self.entries()), 0o600)
            home.complete(version)
            row.checked[version] = time()
            note(f"{self.one.name} {version} is complete")
        home.point_to(version)
        row.pointed = version
        self.show(COMPLETE)

    @property
    def home(self) -> Home:
        return Home(self.one.folder, self.one.name)

    def show(self, state: str, percent: int | None = None) -> None:
        """Set the state that others see."""
        self._state = state
        if percent is not None:
            self.done = self.one.bytes * percent // 100
        self.tell(Progress(self.one.version, state, self.done, "", self.source))

    def entries(self) -> list[Entry]:
        """Return the list of files as the head node published it."""
        if not self._entries:
            try:
                text = files.read(f"{FROM_HEAD}/{files_name(self.one.name, self.one.version)}", MOST_LIST)
                self._entries = read_entries(text or "")
            except ValueError:
                raise Failure(
                    "the head node's list of files is malformed", "see 'journalctl -u tailrack-data-head'"
                ) from None
        return self._entries

    def _copy(self, version: str) -> bool:
        """Return whether the copy is complete."""
        entries = self.entries()
        if not entries:
            return False
        if _sums_known(entries) and self._already_fits(version):
            return True
        fetch = self._way()
        if fetch is None:
            return False
        if not self._has_room(version):
            return False
        part = self.home.begin(version)
        own_sums = f"{HERE}/{sums_name(self.one.name, version)}"
        if not files.exists(own_sums):
            self._run(fetch, part, entries, again=False)
        bad = self._unfitting(part, entries)
        if bad:
            note(f"{self.one.name}: fetching {len(bad)} files again, whose sums do not fit, such as {bad[0].path!r}")
            self._run(fetch, part, bad, again=True)
            bad = self._unfitting(part, bad)
        if bad:
            path = printable(bad[0].path, 100)
            raise Failure(
                f"{len(bad)} files do not fit their sums, such as {path}: the source has changed or is damaged",
                "run 'systemctl start tailrack-data-head' on the head node once the source is whole",
            )
        if _sums_known(entries):
            files.remove(own_sums)
            return True
        if not files.exists(own_sums):
            files.write(own_sums, write_entries(self._read(part, entries)), 0o640, "root", ACCOUNT)
        self.source = "the head node"
        return False

    def _already_fits(self, version: str) -> bool:
        """Return whether the sums that this node computed are those of the list that the head node published since."""
        own_sums = f"{HERE}/{sums_name(self.one.name, version)}"
        text = files.read(own_sums, MOST_LIST)
        if text is None or version not in self.home.parts():
            return False
        fits = read_entries(text) == self.entries()
        # Otherwise the next comparison finds the files that differ.
        files.remove(own_sums)
        return fits

    def _way(self) -> Callable[[str, Sequence[Entry], bool], Ended] | None:
        """Return the function that copies from the best place; None while this node has to wait."""
        site = self.plan.nodes[self.node].site
        peers = [name for name in self.one.complete if name != self.node and self.plan.nodes[name].site == site]
        if peers:
            # Nodes take different peers.
            peer = peers[sum(self.node.encode()) % len(peers)]
            self.source = peer
            return lambda folder, entries, again: self._transfer.from_peer(peer, folder, entries, again)
        fetcher = self.one.fetchers.get(site, "")
        if fetcher == self.node:
            self.source = "source"
            return self._transfer.from_source
        self.source = fetcher
        return None

    def _run(
        self, way: Callable[[str, Sequence[Entry], bool], Ended], part: str, entries: Sequence[Entry], *, again: bool
    ) -> None:
        self.show(FETCHES if self.source == "source" else COPIES, 0 if not self.done else None)
        ended = way(part, entries, again)
        if not ended.ok:
            raise Failure(f"cannot copy from {self._place()}: {account.reason(ended)}", self._remedy(ended))

    def _place(self) -> str:
        return "the source" if self.source == "source" else self.source

    def _remedy(self, ended: Ended) -> str:
        text = ended.errors
        if "No space left" in text or "no space left" in text:
            return f"make room on {self.node} ('df -h {self.one.folder}')"
        if self.source == "source" and self.one.kind == "s3":
            return "check access_key, secret_key, endpoint and source in tailrack:datasets; the node tries again"
        return f"see 'journalctl -u tailrack-data-stage' on {self.node}; the node tries again"

    def _read(self, folder: str, entries: Sequence[Entry]) -> list[Entry]:
        self.done = self.one.bytes
        self.show(SUMS)
        return account.sums_of(folder, [entry.path for entry in entries])

    def _unfitting(self, folder: str, entries: Sequence[Entry]) -> list[Entry]:
        """Return the files that are missing or differ. Without sums, compare sizes; the head node gets the sums."""
        read = self._read(folder, entries)
        bad = [entry for entry, have in zip(entries, read, strict=True) if not self._fits(entry, have)]
        if not bad and not _sums_known(entries) and len(entries) == len(self.entries()):
            text = write_entries(read)
            files.write(f"{HERE}/{sums_name(self.one.name, self.one.version)}", text, 0o640, "root", ACCOUNT)
        return bad

    def _fits(self, entry: Entry, have: Entry) -> bool:
        return entry.size == have.size and (entry.sum or self._transfer.linked.get(entry.path, "")) in ("", have.sum)

    def _repair(self, version: str) -> None:
        """Compare all files of a complete version, and copy damaged ones again."""
        entries = self.entries()
        folder = self.home.version(version)
        if not _sums_known(entries):
            return
        bad = self._unfitting(folder, entries)
        if not bad:
            return
        note(f"{self.one.name}: {len(bad)} files are damaged, such as {bad[0].path!r}")
        way = self._way()
        if way is None:
            # The only node with a complete copy gets them from the source.
            self.source, way = "source", self._transfer.from_source
        self._run(way, folder, bad, again=True)
        if left := self._unfitting(folder, bad):
            raise Failure(
                f"{len(left)} files are damaged and the source does not have them any more, such as "
                f"{printable(left[0].path, 100)}",
                f"check the disk of {self.node}, and the source",
            )
        note(f"{self.one.name}: repaired {len(bad)} files")

    def _has_room(self, version: str) -> bool:
        """Return whether the data set fits on the disk and into the quota, or will once jobs have ended.

        Raises Failure if it never will. If there is no other room, take the last version away from new jobs; it is
        removed once no job can use it.
        """
        lacks = room.Room(self.node, self.plan, self.one, self.taken).lacks(version)
        if lacks is None:
            return True
        size, failure = lacks
        row, others = self.known.of(self.one.name), [name for name in self.home.versions() if name != version]
        used = {name: room.used(self.home.version(name)) for name in others}
        if size > sum(used.values()):
            raise failure
        if size > sum(used[name] for name in others if name != row.pointed):
            self.home.remove_link()
            row.pointed = ""
        self.source = f"the end of jobs that may use {', '.join(others)}"
        return False


def _sums_known(entries: Sequence[Entry]) -> bool:
    return all(entry.sum for entry in entries)
