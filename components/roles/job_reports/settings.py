"""The section `job_reports`: the mail server and the channels for reports about jobs, and users' own receivers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import AfterValidator, SecretStr

from components.roles.monitoring.settings import (
    ADDRESS,
    check_mail_account,
    check_password,
    check_slack_url,
    check_smarthost,
    check_url,
    command,
)
from components.settings.problems import ROOT, Report, suggest
from components.settings.section import Section, check_secret, key, named, yes_no
from components.settings.types import check_name

if TYPE_CHECKING:
    from components.roles.users.settings import User

_NO_REPORTS = "no one would get a report about a job"
_SET_PASSWORD = command("tailrack:job_reports.mail.password")
_SET_URL = command("tailrack:job_reports.channels[0].url")


class MailServer(Section):
    """The server that sends mail about jobs."""

    sender: str = key(
        "the sender's address",
        wants="a mail address",
        breaks=_NO_REPORTS,
        fix="write one such as cluster@example.org",
        pattern=ADDRESS,
    )
    smarthost: Annotated[str, AfterValidator(check_smarthost)] = key(
        "the mail server, as HOST:PORT; port 465 uses TLS from the start",
        wants="HOST:PORT",
        breaks=_NO_REPORTS,
        fix="write one such as smtp.example.org:587",
    )
    user: str | None = key(
        "the account at the mail server; default: no log-in",
        wants="a text of plain characters without blanks",
        breaks=_NO_REPORTS,
        fix="write the account's name",
        pattern=r"^[!-~]{1,200}$",
        default=None,
    )
    password: Annotated[SecretStr, AfterValidator(check_password)] | None = key(
        f"the account's password; a Pulumi secret (`{_SET_PASSWORD}`)",
        wants="a text on one line",
        breaks=_NO_REPORTS,
        fix=f"run: {_SET_PASSWORD}",
        secret=True,
        default=None,
    )
    encrypted: bool = yes_no(
        "reject a mail server without encryption; write false only for a server on your own network without a password",
        True,
    )


class Channel(Section):
    """A webhook or a Slack channel that users[].notify can name."""

    name: Annotated[str, AfterValidator(check_name)] = named(
        "its name, for `users[].notify`", breaks="users[].notify could not name it", fix="write one such as vision"
    )
    kind: Literal["webhook", "slack"] = key(
        "`webhook` (the report is posted as JSON) or `slack`",
        wants="webhook or slack",
        breaks=_NO_REPORTS,
        fix="write one of the two",
    )
    url: Annotated[SecretStr, AfterValidator(check_url)] = key(
        "the address that reports are posted to. It allows anyone to post there, so it is a Pulumi secret "
        f"(`{_SET_URL}`)",
        wants="an http:// or https:// address",
        breaks=_NO_REPORTS,
        fix=f"run: {_SET_URL}",
        secret=True,
    )


class JobReports(Section):
    """Reports about jobs, sent from the head node; without this section only a program `mail` of yours sends any."""

    mail: MailServer | None = key("the mail server for `sbatch --mail-type`; default: no mail", default=None)
    channels: tuple[Channel, ...] = key(
        "webhooks and Slack channels for `users[].notify`",
        wants="a list of channels",
        breaks=_NO_REPORTS,
        fix="write [{name: vision, kind: slack}], then set its url",
        default=(),
    )

    def for_export(self) -> Self:
        """Return it without servers and channels, which only the head node needs."""
        return self.model_copy(update={"mail": None, "channels": ()})


def check_job_reports(reports: JobReports | None, users: Sequence[User], report: Report) -> None:
    """Report plain-text secrets, a log-in that cannot work, and users' receivers that do not exist."""
    channels = reports.channels if reports else ()
    mail = reports.mail if reports else None
    if reports and mail is None and not channels:
        report.add(
            report.at(reports),
            "has neither mail nor channels",
            _NO_REPORTS,
            'write mail: {sender: cluster@example.org, smarthost: "smtp.example.org:587"}, or remove the section',
        )
    if mail:
        breaks = "everyone who reads the config could send mail with this account"
        fix = f"change it at its provider, then run: {command(report.at(mail, 'password'))}"
        check_secret(mail, "password", breaks, fix, report)
        check_mail_account(mail, report)
    names: dict[str, str] = {}
    for channel in channels:
        _check_channel(channel, names, report)
    for user in users:
        _check_notify(user, reports is not None, mail is not None, names, report)


def _check_channel(channel: Channel, names: dict[str, str], report: Report) -> None:
    breaks = "everyone who reads the config could post there"
    fix = f"change it at its provider, then run: {command(report.at(channel, 'url'))}"
    check_secret(channel, "url", breaks, fix, report)
    place = report.at(channel).removeprefix(ROOT)
    if names.setdefault(channel.name, place) != place:
        problem = f"{report.value(report.at(channel), channel.name)} is also the name of {names[channel.name]}"
        report.add(report.at(channel, "name"), problem, "users[].notify would be ambiguous", "rename one of them")
    check_slack_url(channel, "Slack would reject every report", report)


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
