"""The section `job_reports`: the mail server and the channels for reports about jobs, and users' own receivers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, Self

from components.roles.monitoring.settings import (
    ADDRESS,
    MailAccount,
    MailAddress,
    Smarthost,
    Url,
    check_mail_account,
    check_slack_url,
)
from components.settings.problems import Report, suggest
from components.settings.rules import check_unique
from components.settings.section import Section, key
from components.settings.types import PartitionName

if TYPE_CHECKING:
    from components.roles.users.settings import User


class MailServer(MailAccount):
    """The server that sends mail about jobs."""

    sender: MailAddress
    """The sender's address."""
    smarthost: Smarthost
    """The mail server, as HOST:PORT; port 465 uses TLS from the start."""


class Channel(Section):
    """A webhook or a Slack channel that users[].notify can name."""

    name: PartitionName
    """Its name, for `users[].notify`."""
    kind: Literal["webhook", "slack"]
    """`webhook` (the report is posted as JSON) or `slack`."""
    url: Url
    """The address that reports are posted to. It allows anyone to post there."""


class JobReports(Section):
    """Reports about jobs, sent from the head node; without this section only a program `mail` of yours sends any."""

    mail: MailServer | None = None
    """The mail server for `sbatch --mail-type`; default: no mail."""
    channels: tuple[Channel, ...] = key(fix="write [{name: vision, kind: slack}], then set its url", default=())
    """Webhooks and Slack channels for `users[].notify`."""

    def for_export(self) -> Self:
        """Return it without servers and channels, which only the head node needs."""
        return self.model_copy(update={"mail": None, "channels": ()})


def check_job_reports(reports: JobReports | None, users: Sequence[User], report: Report) -> None:
    """Report plain-text secrets, a log-in that cannot work, and users' receivers that do not exist."""
    channels = reports.channels if reports else ()
    mail = reports.mail if reports else None
    if reports and mail is None and not channels:
        fix = 'write mail: {sender: cluster@example.org, smarthost: "smtp.example.org:587"}, or remove the section'
        report.add((reports,), "has neither mail nor channels", "no one would get a report about a job", fix)
    if mail:
        check_mail_account(mail, report)
    problem, breaks = "is also the name of {}", "users[].notify would be ambiguous"
    names = check_unique(channels, "name", problem, breaks, "rename one of them", report)
    for channel in channels:
        check_slack_url(channel, channel.kind, channel.url, "Slack would reject every report", report)
    for user in users:
        _check_notify(user, reports is not None, mail is not None, names, report)


def _check_notify(user: User, enabled: bool, mail: bool, channels: dict[str, str], report: Report) -> None:
    path = report.at(user, "notify")
    for receiver in user.notify:
        shown = report.value(path, receiver)
        if not enabled:
            problem, fix = f"{shown} is set without tailrack:job_reports", "write that section, or remove notify"
        elif "@" in receiver and not mail:
            problem, fix = f"{shown} is a mail address, and tailrack:job_reports has no mail server", "write mail there"
        elif "@" not in receiver and receiver not in channels:
            problem = f"{shown} is no channel of tailrack:job_reports"
            fix = suggest(receiver, channels) if channels else "add the channel there, or write a mail address"
        else:
            continue
        report.add(path, problem, "the user would get no report", fix)


def is_receiver(value: str) -> bool:
    """Return whether a text is a mail address, or can be the name of a channel."""
    return bool(re.fullmatch(ADDRESS if "@" in value else r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?", value))
