"""Transfer files of one data set to this node, from another node or from the source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from components.node import files
from components.node.run import Ended
from components.node.waiting import now, sleep
from components.roles.datasets import account, rclone, rsync
from components.roles.datasets.known import Known
from components.roles.datasets.model import MOST_LIST, Entry, Member, Plan, PlannedSet, list_name, read_entries
from components.roles.datasets.paths import ACCOUNT, FABRIC_PORT, FROM_HEAD, LISTS, PORT
from components.roles.datasets.versions import Home

_RUN = "/run/tailrack-data"
# rsync's exit statuses: the server refuses; it does not answer.
_REFUSED, _SILENT = 5, (10, 35)
# Longer than the time between two passes of a node.
_ADMIT_SECONDS = 45


@dataclass
class Transfer:
    """Transfers of one data set in one pass.

    report   receives the percentage that has arrived
    linked   sums of files of the last version that are in this one too, by path
    """

    node: str
    plan: Plan
    one: PlannedSet
    known: Known
    report: Callable[[int], None]
    linked: dict[str, str] = field(default_factory=dict)

    def from_peer(self, peer: str, folder: str, entries: Sequence[Entry], again: bool) -> Ended:
        path = f"set-{self.one.name}/{self.one.version}"
        ended = Ended(1, "")
        for address, port in addresses(self.plan.nodes[self.node], self.plan.nodes[peer]):
            ended = self._rsync(rsync.url(address, port, path), folder, entries, again)
            end = now() + _ADMIT_SECONDS
            # The peer admits a node that has just joined when it has read the plan.
            while ended.status == _REFUSED and port == FABRIC_PORT and now() < end:
                sleep(3)
                ended = self._rsync(rsync.url(address, port, path), folder, entries, again)
            # Only an address that does not answer is worth another one.
            if ended.ok or ended.status not in (_REFUSED, *_SILENT):
                break
        return ended

    def from_source(self, folder: str, entries: Sequence[Entry], again: bool) -> Ended:
        if self.one.kind == "share":
            return self._rsync(rsync.url(self.plan.head, PORT, f"source-{self.one.name}"), folder, entries, again)
        config = f"{_RUN}/{self.one.name}.conf"
        files.make_folder(_RUN, 0o750, group=ACCOUNT)
        rclone.write_config(config, files.read(f"{FROM_HEAD}/remote.{self.one.name}") or "")
        paths = f"{_RUN}/{self.one.name}.paths"
        files.write(paths, "\n".join(entry.path for entry in entries), 0o640, "root", ACCOUNT)
        # Without their sums, damage to the last version's files would go into this one.
        old = [] if again else [version for version in self._old() if files.exists(self._list(version))]
        try:
            ended = rclone.copy(
                config,
                folder,
                paths=files.on_disk(paths),
                report=self.report,
                rate=self.plan.rate,
                old=[self._home.version(version) for version in old],
                again=again,
            )
        finally:
            files.remove(config)
            files.remove(paths)
        self.linked = {}
        if ended.ok and old:
            self._link(old[0], folder, entries)
        return ended

    def _rsync(self, url: str, folder: str, entries: Sequence[Entry], again: bool) -> Ended:
        files.make_folder(_RUN, 0o750, group=ACCOUNT)
        paths = f"{_RUN}/{self.one.name}.paths"
        # Without the folder, rsync takes `#file` for a comment.
        files.write(paths, "\n".join(f"./{entry.path}" for entry in entries), 0o640, "root", ACCOUNT)
        try:
            return rsync.copy(
                url,
                folder,
                report=self.report,
                rate=self.plan.rate,
                paths=files.on_disk(paths),
                old=[self._home.version(version) for version in self._old()],
                again=again,
            )
        finally:
            files.remove(paths)

    def _link(self, version: str, folder: str, entries: Sequence[Entry]) -> None:
        """Link the files that did not change since the last version."""
        sums = {entry.path: entry.sum for entry in read_entries(files.read(self._list(version), MOST_LIST) or "")}
        paths = account.link_missing(self._home.version(version), folder, [entry.path for entry in entries])
        self.linked = {path: sums.get(path, "") for path in paths}

    def _old(self) -> list[str]:
        """Return the version that the link leads to, if it is another one."""
        pointed = self.known.of(self.one.name).pointed
        return [version for version in self._home.versions() if version == pointed != self.one.version]

    def _list(self, version: str) -> str:
        return f"{LISTS}/{list_name(self.one.name, version)}"

    @property
    def _home(self) -> Home:
        return Home(self.one.folder, self.one.name)


def addresses(mine: Member, theirs: Member) -> list[tuple[str, int]]:
    """Return the addresses and ports of another node: on the best network that both have, then on the tailnet."""
    groups = {group for group, _, _ in mine.fabric}
    shared = sorted(((rank, address) for group, rank, address in theirs.fabric if group in groups), reverse=True)
    return [*((address, FABRIC_PORT) for _, address in shared[:1]), (theirs.address, PORT)]
