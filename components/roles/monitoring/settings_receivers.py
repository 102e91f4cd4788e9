"""Who is told of alerts: `monitoring.receivers` of the config, and what each kind of receiver needs."""

import re
from collections.abc import Mapping
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, SecretStr

from components.settings.draft import Draft, check_hidden
from components.settings.problems import MASK, Report
from components.settings.section import Section, key, yes_no
from components.settings.types import refuse

_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
# No braces among what a mailbox may be: Alertmanager would take them for a template.
_ADDRESS = rf"^[A-Za-z0-9._%+-]{{1,64}}@{_HOST}$"
_URL = re.compile(rf"https?://([!-.0-?A-Z\[-~]{{1,200}}@)?{_HOST}(:[0-9]{{1,5}})?([/?][!-~]{{0,2000}})?")
_PASSWORD = re.compile(r"[!-~]([ -~]{0,1022}[!-~])?")
# What a kind needs, and what it may have besides.
NEEDS: Mapping[str, tuple[str, ...]] = {"webhook": ("url",), "slack": ("url",), "mail": ("to", "sender", "smarthost")}
MAY: Mapping[str, tuple[str, ...]] = {"webhook": (), "slack": (), "mail": ("user", "password", "encrypted")}
_NOBODY = "nobody would be told of an alert"


def command(path: str) -> str:
    """The command that sets a secret at a path of the config."""
    return f"pulumi config set --path --secret '{path}'"


_SET_URL, _SET_PASSWORD = (command(f"tailrack:monitoring.receivers[0].{name}") for name in ("url", "password"))


def _url(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not _URL.fullmatch(text):
        refuse("is no http:// or https:// address of plain characters")
    try:
        wrong = urlsplit(text).port == 0
    except ValueError:
        wrong = True
    if wrong:
        refuse("has a port that there is not", None, "write a port from 1 to 65535, or none")
    return value


def _password(value: SecretStr) -> SecretStr:
    if not _PASSWORD.fullmatch(value.get_secret_value()):
        refuse("is empty, too long, or has line breaks, blanks at an end or other than plain characters in it")
    return value


def _smarthost(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not re.fullmatch(_HOST, host) or not re.fullmatch(r"[1-9][0-9]{0,4}", port) or int(port) > 65535:
        refuse("is not HOST:PORT")
    return value


class Receiver(Section):
    """One who is told. Which keys go with a kind is NEEDS and MAY."""

    kind: Literal["webhook", "slack", "mail"] = key(
        "how alerts get there: `webhook`, `slack` or `mail`",
        wants="webhook, slack or mail",
        breaks=_NOBODY,
        fix="write one of the three",
    )
    url: Annotated[SecretStr, AfterValidator(_url)] | None = key(
        "of a webhook, and needed there: the address that alerts are posted to as JSON; of Slack: the address of an "
        f"incoming webhook. Whoever has it can write there, so it is a Pulumi secret (`{_SET_URL}`)",
        wants="an http:// or https:// address",
        breaks=_NOBODY,
        fix=f"run: {_SET_URL}",
        secret=True,
        default=None,
    )
    to: str | None = key(
        "of mail, and needed there: the address that alerts are sent to",
        wants="a mail address",
        breaks=_NOBODY,
        fix="write one such as ops@example.org",
        pattern=_ADDRESS,
        default=None,
    )
    sender: str | None = key(
        "of mail, and needed there: the address that they are from",
        wants="a mail address",
        breaks=_NOBODY,
        fix="write one such as cluster@example.org",
        pattern=_ADDRESS,
        default=None,
    )
    smarthost: Annotated[str, AfterValidator(_smarthost)] | None = key(
        "of mail, and needed there: the mail server that takes them, as HOST:PORT",
        wants="HOST:PORT",
        breaks=_NOBODY,
        fix="write one such as smtp.example.org:587",
        default=None,
    )
    user: str | None = key(
        "of mail: the account at the mail server; left out, it asks for none",
        wants="a text of plain characters without blanks",
        breaks=_NOBODY,
        fix="write the account's name",
        pattern=r"^[!-~]{1,200}$",
        default=None,
    )
    password: Annotated[SecretStr, AfterValidator(_password)] | None = key(
        f"of mail: the account's password; a Pulumi secret (`{_SET_PASSWORD}`)",
        wants="a text on one line",
        breaks=_NOBODY,
        fix=f"run: {_SET_PASSWORD}",
        secret=True,
        default=None,
    )
    encrypted: bool = yes_no(
        "of mail: refuse a mail server that does not encrypt; false for one on a network of your own, without a "
        "password",
        True,
    )


def check_receiver(receiver: Draft, report: Report) -> None:
    """Report secrets in plain text, and keys that its kind lacks or knows nothing of."""
    for name in ("url", "password"):
        breaks = "everybody who reads the config could write there"
        fix = f"change it where it is from, then run: {command(receiver.at(name))}"
        check_hidden(receiver, name, breaks, fix, report)
    kind = receiver.text("kind") or ""
    if kind not in NEEDS:
        return  # refused already
    for name in NEEDS[kind]:
        if name not in receiver.raw:
            at = receiver.at(name)
            fix = f"run: {command(at)}" if name == "url" else f"write {name}"
            report.add(at, f"is missing beside kind {kind}", _NOBODY, fix)
    for name in receiver.raw:
        if name in Receiver.model_fields and name not in ("kind", *NEEDS[kind], *MAY[kind]):
            of = " or ".join(other for other in NEEDS if name in (*NEEDS[other], *MAY[other]))
            what = f"is no key of kind {kind}"
            report.add(receiver.at(name), what, "it would change nothing", f"take it out, or write kind: {of}")
    url = receiver.values.get("url")
    if kind == "slack" and isinstance(url, SecretStr) and not url.get_secret_value().startswith("https://"):
        breaks, fix = (
            "Slack takes nothing there",
            "copy the address of the incoming webhook: https://hooks.slack.com/...",
        )
        report.add(receiver.at("url"), f"{MASK} is no https:// address", breaks, fix)
    if kind == "mail":
        _check_mail(receiver, report)


def _check_mail(receiver: Draft, report: Report) -> None:
    if ("user" in receiver.raw) != ("password" in receiver.raw):
        what = "has one of user and password without the other"
        report.add(receiver.path, what, "the mail server would let nobody in", "write both, or neither")
    if receiver.value("encrypted") is False and "password" in receiver.raw:
        what, breaks = "false beside a password", "whoever is on the way to the mail server could read the password"
        report.add(receiver.at("encrypted"), what, breaks, "write true, or take user and password out")
