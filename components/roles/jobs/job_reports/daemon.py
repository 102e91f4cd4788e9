"""Send reports about jobs. The service runs this as its own account (tailrack-job-reports.service)."""

import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from components.roles.jobs.job_reports.host import MAIL_PASSWORD, SETTINGS, SPOOL, STATE
from components.roles.jobs.job_reports.outbox import Outbox, Waiting
from components.roles.jobs.job_reports.report import (
    Event,
    Report,
    event_files,
    read_event,
    receivers_of,
    remove_event,
    write_report,
)
from components.roles.jobs.job_reports.send import Message, NotSent, post, send_mail
from components.validation.preflight.findings import plain

_LOOK_SECONDS = 1.0
# A server that does not answer is left alone for this time, so that others do not wait for it.
_PAUSE_SECONDS = 30
# slurmctld is asked about so many jobs of a flood per receiver; the rest are only counted.
_EXPLAINED = 20
_SHOWN_IN_DIGEST = 20
_MOST_AT_ONCE = 100


def main(_: Sequence[str]) -> int:
    """Run until systemd ends it."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    credentials = Path(os.environ.get("CREDENTIALS_DIRECTORY", ""))
    secrets = {path.name: path.read_text(encoding="utf-8").rstrip("\n") for path in credentials.iterdir()}
    service = Service(json.loads(secrets.pop(SETTINGS)), secrets, Path(SPOOL), Outbox(Path(STATE)))
    while True:
        service.turn()
        time.sleep(_LOOK_SECONDS)


@dataclass
class Service:
    """The service at work.

    settings   see role.py
    secrets    the mail account's password and the channels' addresses, by file name
    """

    settings: Mapping[str, Any]
    secrets: Mapping[str, str]
    spool: Path
    outbox: Outbox
    _paused: dict[str, float] = field(default_factory=dict)
    # Errors of files and disks, by the file's name or the method's, which are tried again every second.
    _errors: dict[str, str] = field(default_factory=dict)
    # Names of files that are taken and could not be removed yet.
    _taken: set[str] = field(default_factory=set)

    def turn(self) -> None:
        """Collect and deliver. A file or a disk that fails stops nothing else, and each error is logged once."""
        for work in (self.collect, self.deliver):
            self._try(work.__name__, work)

    def _try(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except OSError as error:
            text = f"{error.filename or self.spool}: {error.strerror}"
            if self._errors.get(name) != text:
                _log(f"{text}; it is tried again every second")
            self._errors[name] = text
        else:
            self._errors.pop(name, None)

    def collect(self) -> None:
        """Turn events into reports, and remove the events once the reports are saved."""
        paths = event_files(self.spool)
        # Those that failed come last, so that they keep no place from others.
        for path in sorted(paths, key=lambda path: path.name in self._errors)[:_MOST_AT_ONCE]:
            self._try(path.name, partial(self._collect, path))
        names = {path.name for path in paths}
        self._taken &= names
        self._errors = {name: text for name, text in self._errors.items() if name in names or "." not in name}

    def _collect(self, path: Path) -> None:
        if path.name not in self._taken:
            if event := read_event(path):
                self._take(path.stem, event, _age(path))
            else:
                _log("ignoring an event that slurmctld's MailProg did not write")
            self._taken.add(path.name)
        remove_event(path)

    def _take(self, name: str, event: Event, since: float) -> None:
        notify = self.settings["notify"]
        key = re.sub(r"[^A-Za-z0-9-]", "", name)[:60]
        report: Report | None = None
        user = event.user
        if not user or not self._is_flood(event, user):
            report = write_report(event)
            user = report.user or user
        receivers = [receiver for receiver in receivers_of(event.to, user, notify) if self._reachable(receiver)]
        if not receivers:
            _log(f"no report about job {event.job}: it names no mail address, and user {user} has no notify")
            return
        if report is None:
            sentence = plain(event.subject)
            report = Report(user, sentence, f"{sentence}\n  To see why, run: tailrack why {event.job}")
        for number, receiver in enumerate(receivers):
            waiting = Waiting(f"{key}-{number}", receiver, user, report.title, report.text, since)
            if not self.outbox.add(waiting):
                _log(f"no report about job {event.job}: too many others wait")
        self.outbox.sync()

    def _is_flood(self, event: Event, user: str) -> bool:
        receivers = list(receivers_of(event.to, user, self.settings["notify"]))
        counts = Counter(report.to for report in self.outbox.waiting.values())
        return bool(receivers) and all(counts[receiver] >= _EXPLAINED for receiver in receivers)

    def _reachable(self, receiver: str) -> bool:
        if "@" in receiver:
            return self.settings["mail"] is not None
        return receiver in self.settings["channels"]

    def deliver(self) -> None:
        """Send the messages that are due."""
        now = time.monotonic()
        for reports in self.outbox.due(now):
            receiver = reports[0].to
            if not self._reachable(receiver):
                _log(f"dropping {len(reports)} reports to {receiver}: the config no longer has it")
                self.outbox.drop(reports)
                continue
            server = "the mail server" if "@" in receiver else f"channel {receiver}"
            if self._paused.get(server, 0) > now:
                continue
            try:
                self._send(_message(reports))
            except NotSent as error:
                self._not_sent(reports, server, error, now)
            else:
                self._paused.pop(server, None)
                self.outbox.sent(reports, now)

    def _send(self, message: Message) -> None:
        cluster = self.settings["cluster"]
        if "@" in message.to:
            send_mail(self.settings["mail"], self.secrets.get(MAIL_PASSWORD, ""), cluster, message)
        else:
            kind = self.settings["channels"][message.to]
            post(kind, self.secrets[f"channel-{message.to}"], cluster, message)

    def _not_sent(self, reports: Sequence[Waiting], server: str, error: NotSent, now: float) -> None:
        what = f"report {reports[0].key} to {reports[0].to}"
        if error.final:
            _log(f"dropping {what}: {error}")
            self.outbox.drop(reports)
            return
        if error.server:
            self._paused[server] = now + _PAUSE_SECONDS
        kept = self.outbox.failed(reports, now)
        _log(f"cannot send {what}: {error}; {'it is tried again' if kept else 'it was tried for a day and is dropped'}")


def _message(reports: Sequence[Waiting]) -> Message:
    first = reports[0]
    if len(reports) == 1:
        return Message(first.key, first.to, first.title, first.text)
    users = Counter(report.user for report in reports)
    title = f"{len(reports)} reports about jobs of {', '.join(sorted(users)[:5])}"
    texts = [report.text for report in reports[:_SHOWN_IN_DIGEST]]
    if len(reports) > _SHOWN_IN_DIGEST:
        texts.append(f"and {len(reports) - _SHOWN_IN_DIGEST} more; to see your jobs of today, run: sacct -X")
    return Message(first.key, first.to, title, "\n\n".join(texts))


def _age(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return time.time()


def _log(text: str) -> None:
    sys.stderr.write(f"{plain(text)}\n")
    sys.stderr.flush()
