"""Reports that are not sent yet: one file each, which survives a restart. Decides when each is due."""

import json
import os
import re
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

_FIRST_WAIT, _LONGEST_WAIT = 30, 1800
# After so many tries, which take a day, a report that could not be sent is dropped.
MOST_TRIES = 54
# A receiver gets so many messages an hour, one per report. After that it gets a digest every quarter of an hour.
SINGLE_AN_HOUR = 10
DIGEST_SECONDS = 900
# A user's jobs cause so many messages an hour to all receivers together, because a job can name any address.
MOST_OF_A_USER = 60
MOST_WAITING = 10_000
_HOUR = 3600
_NAME = re.compile(r"[A-Za-z0-9.-]{1,80}\.report")


@dataclass
class Waiting:
    """A report for one receiver.

    key     the name of its file, and the message's id at the receiver
    since   Unix seconds of the event
    due     monotonic seconds of the next try; not saved
    """

    key: str
    to: str
    user: str
    title: str
    text: str
    since: float
    tries: int = 0
    due: float = field(default=0, compare=False)


class Outbox:
    """The reports that wait, in a folder that only this account can access."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._sent: dict[str, deque[float]] = {}
        self.waiting: dict[str, Waiting] = {}
        for path in sorted(folder.iterdir()):
            # One file that cannot be read or removed must not stop the others.
            with suppress(OSError, ValueError, TypeError):
                if not _NAME.fullmatch(path.name):
                    path.unlink()  # a file that was cut off
                    continue
                report = Waiting(**json.loads(path.read_text(encoding="utf-8")))
                self.waiting[report.key] = report

    def add(self, report: Waiting) -> bool:
        """Save a report; one with the same key is replaced. Return False if too many wait."""
        if len(self.waiting) >= MOST_WAITING and report.key not in self.waiting:
            return False
        path = self._path(report.key)
        fresh = path.with_suffix(".new")
        saved = {name: value for name, value in asdict(report).items() if name != "due"}
        with fresh.open("w", encoding="utf-8") as stream:
            json.dump(saved, stream)
            stream.flush()
            os.fsync(stream.fileno())
        fresh.replace(path)
        self.waiting[report.key] = report
        return True

    def sync(self) -> None:
        """Write the folder's names to the disk."""
        descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def due(self, now: float) -> list[list[Waiting]]:
        """Return the messages to send now: each a list of reports to the same receiver."""
        by_receiver: dict[str, list[Waiting]] = {}
        for report in sorted(self.waiting.values(), key=lambda report: report.since):
            if report.due <= now:
                by_receiver.setdefault(report.to, []).append(report)
        messages: list[list[Waiting]] = []
        planned: Counter[str] = Counter()
        for receiver, reports in by_receiver.items():
            for group in self._grouped(receiver, reports, now):
                users = {report.user for report in group}
                if all(len(self._times(f"user {user}", now)) + planned[user] < MOST_OF_A_USER for user in users):
                    planned.update(users)
                    messages.append(group)
        return messages

    def _grouped(self, receiver: str, reports: list[Waiting], now: float) -> list[list[Waiting]]:
        times = self._times(receiver, now)
        free = SINGLE_AN_HOUR - len(times)
        if len(reports) <= free:
            return [[report] for report in reports]
        if free > 0 or now - times[-1] >= DIGEST_SECONDS:
            return [reports]
        return []

    def sent(self, reports: Sequence[Waiting], now: float) -> None:
        """Forget reports that were sent as one message."""
        self._times(reports[0].to, now).append(now)
        for user in {report.user for report in reports}:
            self._times(f"user {user}", now).append(now)
        self.drop(reports)

    def drop(self, reports: Sequence[Waiting]) -> None:
        """Forget reports."""
        for report in reports:
            self.waiting.pop(report.key, None)
            self._path(report.key).unlink(missing_ok=True)

    def failed(self, reports: Sequence[Waiting], now: float) -> bool:
        """Set the next try. Return False, and forget them, if it has been too long."""
        old = [report for report in reports if report.tries >= MOST_TRIES]
        self.drop(old)
        for report in reports:
            if report.key in self.waiting:
                report.due = now + min(_FIRST_WAIT * 2 ** min(report.tries, 10), _LONGEST_WAIT)
                report.tries += 1
        return not old

    def _path(self, key: str) -> Path:
        return self._folder / f"{key}.report"

    def _times(self, name: str, now: float) -> deque[float]:
        """Return when messages were sent in the last hour."""
        if len(self._sent) > MOST_WAITING:
            self._sent = {other: times for other, times in self._sent.items() if times and now - times[-1] < _HOUR}
        times = self._sent.setdefault(name, deque())
        while times and now - times[0] >= _HOUR:
            times.popleft()
        return times
