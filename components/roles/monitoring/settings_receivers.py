"""The section `monitoring.receivers`, and the keys that each kind of receiver needs."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from components.settings.draft import Draft, check_secret
from components.settings.problems import MASK, Report
from components.settings.section import Section, key, yes_no
from components.settings.types import refuse

_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
# No braces in a mail address: Alertmanager would read them as a template.
ADDRESS = rf"^[A-Za-z0-9._%+-]{{1,64}}@{_HOST}$"
_URL = re.compile(rf"https?://([!-.0-?A-Z\[-~]{{1,200}}@)?{_HOST}(:[0-9]{{1,5}})?([/?][!-~]{{0,2000}})?")
_PASSWORD = re.compile(r"[!-~]([ -~]{0,1022}[!-~])?")
# Required and optional keys of each kind.
REQUIRED: Mapping[str, tuple[str, ...]] = {
    "webhook": ("url",),
    "slack": ("url",),
    "mail": ("to", "sender", "smarthost"),
}
OPTIONAL: Mapping[str, tuple[str, ...]] = {"webhook": (), "slack": (), "mail": ("user", "password", "encrypted")}
_NO_ALERTS = "no one would get an alert"


def command(path: str) -> str:
    """Return the command that sets a secret at a path of the config."""
    return f"pulumi config set --path --secret '{path}'"


_SET_URL, _SET_PASSWORD = (command(f"tailrack:monitoring.receivers[0].{name}") for name in ("url", "password"))


def check_url(value: SecretStr) -> SecretStr:
    """Return the address of a webhook. Refuse others."""
    text = value.get_secret_value()
    if not _URL.fullmatch(text):
        refuse("is not an http:// or https:// address of plain characters")
    try:
        bad_port = urlsplit(text).port == 0
    except ValueError:
        bad_port = True
    if bad_port:
        refuse("has an invalid port", None, "write a port from 1 to 65535, or none")
    return value


def check_password(value: SecretStr) -> SecretStr:
    """Return a password on one line. Refuse others."""
    if not _PASSWORD.fullmatch(value.get_secret_value()):
        refuse("is empty or too long, or has line breaks, blanks at its ends or special characters")
    return value


def check_smarthost(value: str) -> str:
    """Return HOST:PORT. Refuse other texts."""
    host, _, port = value.rpartition(":")
    if not re.fullmatch(_HOST, host) or not re.fullmatch(r"[1-9][0-9]{0,4}", port) or int(port) > 65535:
        refuse("is not HOST:PORT")
    return value


class Receiver(Section):
    """A receiver of alerts. REQUIRED and OPTIONAL list the keys of each kind."""

    kind: Literal["webhook", "slack", "mail"] = key(
        "how alerts are sent: `webhook`, `slack` or `mail`",
        wants="webhook, slack or mail",
        breaks=_NO_ALERTS,
        fix="write one of the three",
    )
    url: Annotated[SecretStr, AfterValidator(check_url)] | None = key(
        "webhook and slack, required: for a webhook, the address that alerts are posted to as JSON; for Slack, the "
        f"address of an incoming webhook. It allows anyone to post there, so it is a Pulumi secret (`{_SET_URL}`)",
        wants="an http:// or https:// address",
        breaks=_NO_ALERTS,
        fix=f"run: {_SET_URL}",
        secret=True,
        default=None,
    )
    to: str | None = key(
        "mail only, required: the recipient's address",
        wants="a mail address",
        breaks=_NO_ALERTS,
        fix="write one such as ops@example.org",
        pattern=ADDRESS,
        default=None,
    )
    sender: str | None = key(
        "mail only, required: the sender's address",
        wants="a mail address",
        breaks=_NO_ALERTS,
        fix="write one such as cluster@example.org",
        pattern=ADDRESS,
        default=None,
    )
    smarthost: Annotated[str, AfterValidator(check_smarthost)] | None = key(
        "mail only, required: the mail server, as HOST:PORT",
        wants="HOST:PORT",
        breaks=_NO_ALERTS,
        fix="write one such as smtp.example.org:587",
        default=None,
    )
    user: str | None = key(
        "mail only: the account at the mail server; default: no log-in",
        wants="a text of plain characters without blanks",
        breaks=_NO_ALERTS,
        fix="write the account's name",
        pattern=r"^[!-~]{1,200}$",
        default=None,
    )
    password: Annotated[SecretStr, AfterValidator(check_password)] | None = key(
        f"mail only: the account's password; a Pulumi secret (`{_SET_PASSWORD}`)",
        wants="a text on one line",
        breaks=_NO_ALERTS,
        fix=f"run: {_SET_PASSWORD}",
        secret=True,
        default=None,
    )
    encrypted: bool = yes_no(
        "mail only: reject a mail server without encryption; write false only for a server on your own network "
        "without a password",
        True,
    )


def check_receiver(receiver: Draft, report: Report) -> None:
    """Report plain-text secrets, missing keys, and keys of another kind."""
    for name in ("url", "password"):
        breaks = "everyone who reads the config could post there"
        fix = f"change it at its provider, then run: {command(receiver.path_of(name))}"
        check_secret(receiver, name, breaks, fix, report)
    kind = receiver.text("kind") or ""
    if kind not in REQUIRED:
        return  # reported already
    for name in REQUIRED[kind]:
        if name not in receiver.raw:
            path = receiver.path_of(name)
            fix = f"run: {command(path)}" if name == "url" else f"write {name}"
            report.add(path, f"is missing for kind {kind}", _NO_ALERTS, fix)
    for name in receiver.raw:
        if name in Receiver.model_fields and name not in ("kind", *REQUIRED[kind], *OPTIONAL[kind]):
            kinds = " or ".join(other for other in REQUIRED if name in (*REQUIRED[other], *OPTIONAL[other]))
            problem = f"is not a key of kind {kind}"
            report.add(receiver.path_of(name), problem, "it would have no effect", f"remove it, or write kind: {kinds}")
    check_slack_url(receiver, "Slack would reject every alert", report)
    if kind == "mail":
        check_mail_account(receiver, report)


def check_slack_url(receiver: Draft, breaks: str, report: Report) -> None:
    """Report an address of kind slack that is not https://, without showing it."""
    url = receiver.values.get("url")
    if (
        receiver.text("kind") == "slack"
        and isinstance(url, SecretStr)
        and not url.get_secret_value().startswith("https://")
    ):
        fix = "copy the address of the incoming webhook: https://hooks.slack.com/..."
        report.add(receiver.path_of("url"), f"{MASK} is not an https:// address", breaks, fix)


def check_mail_account(receiver: Draft, report: Report) -> None:
    """Report half a log-in, and a password that would be sent without encryption."""
    if ("user" in receiver.raw) != ("password" in receiver.raw):
        problem = "has one of user and password without the other"
        report.add(receiver.path, problem, "the mail server would reject the log-in", "write both, or neither")
    if receiver.value("encrypted") is False and "password" in receiver.raw:
        problem, breaks = "is false with a password", "anyone between the two machines could read the password"
        report.add(receiver.path_of("encrypted"), problem, breaks, "write true, or remove user and password")
