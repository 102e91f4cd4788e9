"""The section `monitoring`: ports, retention, and alert receivers with the keys that each kind needs."""

import re
from collections.abc import Mapping
from itertools import combinations
from typing import Annotated, Literal, Protocol, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from components.settings.problems import MASK, Report, secret_command
from components.settings.section import Help, Section, check_secret, key
from components.settings.types import Checksum, Port, Whole, refuse

GRAFANA_PORT = 3000


def _archive(value: str) -> str:
    if not re.fullmatch(r"(https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?)?(/[A-Za-z0-9._~+-]+)+[.]tar[.]gz", value):
        raise ValueError("neither an address nor a path")
    return value


Archive = Annotated[str, Field(max_length=300), AfterValidator(_archive)]


class Grafana(Section):
    """Grafana on the head node. No distribution packages it, so the config names a release."""

    source: Archive = key(
        wants="an address or a path that ends with .tar.gz",
        fix="copy the address from Grafana's download page: linux-amd64 or linux-arm64, like the head node",
    )
    """Grafana's archive for Linux: the address of the .tar.gz on its download page, or a path on the head node."""
    sha256: Checksum
    """SHA-256 of that archive, from the same page."""
    port: Port = GRAFANA_PORT
    """TCP port of Grafana on the head node's tailnet address."""


PORT, EXPORTER_PORT, ALERTMANAGER_PORT = 9090, 9100, 9093
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


Url = Annotated[SecretStr, AfterValidator(check_url), Help("an http:// or https:// address")]
Password = Annotated[SecretStr, AfterValidator(check_password)]
MailAddress = Annotated[str, Field(pattern=ADDRESS), Help("a mail address", "write one such as ops@example.org")]
MailUser = Annotated[
    str,
    Field(pattern=r"^[!-~]{1,200}$"),
    Help("a text of plain characters without blanks", "write the account's name"),
]
Smarthost = Annotated[str, AfterValidator(check_smarthost), Help("HOST:PORT", "write one such as smtp.example.org:587")]


class Receiver(Section):
    """A receiver of alerts. REQUIRED and OPTIONAL list the keys of each kind."""

    kind: Literal["webhook", "slack", "mail"]
    """How alerts are sent: `webhook`, `slack` or `mail`."""
    url: Url | None = None
    """Webhook and slack, required: for a webhook, the address that alerts are posted to as JSON; for Slack, the
    address of an incoming webhook. It allows anyone to post there."""
    to: MailAddress | None = None
    """Mail only, required: the recipient's address."""
    sender: MailAddress | None = None
    """Mail only, required: the sender's address."""
    smarthost: Smarthost | None = None
    """Mail only, required: the mail server, as HOST:PORT."""
    user: MailUser | None = None
    """Mail only: the account at the mail server; default: no log-in."""
    password: Password | None = None
    """Mail only: the account's password."""
    encrypted: bool = True
    """Mail only: reject a mail server without encryption; write false only for a server on your own network without a
    password."""


def check_receiver(receiver: Receiver, report: Report) -> None:
    """Report plain-text secrets, missing keys, and keys of another kind."""
    for name in ("url", "password"):
        check_secret(receiver, name, "everyone who reads the config could post there", report)
    given, kind = receiver.model_fields_set, receiver.kind
    for name in REQUIRED[kind]:
        if name not in given:
            path = report.at(receiver, name)
            fix = f"run: {secret_command(path)}" if name == "url" else f"write {name}"
            report.add(path, f"is missing for kind {kind}", _NO_ALERTS, fix)
    for name in sorted(given - {"kind", *REQUIRED[kind], *OPTIONAL[kind]}):
        kinds = " or ".join(other for other in REQUIRED if name in (*REQUIRED[other], *OPTIONAL[other]))
        problem, fix = f"is not a key of kind {kind}", f"remove it, or write kind: {kinds}"
        report.add(report.at(receiver, name), problem, "it would have no effect", fix)
    check_slack_url(receiver, "Slack would reject every alert", report)
    if kind == "mail":
        check_mail_account(receiver, report)


class _Address(Protocol):
    """A receiver with an address."""

    @property
    def kind(self) -> str: ...
    @property
    def url(self) -> SecretStr | None: ...


def check_slack_url(receiver: _Address, breaks: str, report: Report) -> None:
    """Report an address of kind slack that is not https://, without showing it."""
    url = receiver.url
    if receiver.kind == "slack" and url is not None and not url.get_secret_value().startswith("https://"):
        fix = "copy the address of the incoming webhook: https://hooks.slack.com/..."
        report.add(report.at(receiver, "url"), f"{MASK} is not an https:// address", breaks, fix)


class _MailAccount(Protocol):
    """A log-in at a mail server."""

    @property
    def user(self) -> str | None: ...
    @property
    def password(self) -> SecretStr | None: ...
    @property
    def encrypted(self) -> bool: ...


def check_mail_account(account: _MailAccount, report: Report) -> None:
    """Report half a log-in, and a password that would be sent without encryption."""
    if (account.user is None) != (account.password is None):
        problem = "has one of user and password without the other"
        report.add(report.at(account), problem, "the mail server would reject the log-in", "write both, or neither")
    if not account.encrypted and account.password is not None:
        problem, breaks = "is false with a password", "anyone between the two machines could read the password"
        report.add(report.at(account, "encrypted"), problem, breaks, "write true, or remove user and password")


class Monitoring(Section):
    """Metrics of all machines, collected on the head node; without this section there are none."""

    port: Port = PORT
    """TCP port of Prometheus on the head node's tailnet address."""
    exporter_port: Port = EXPORTER_PORT
    """TCP port of the node exporter on every machine's tailnet address."""
    retention_days: Whole = key(ge=1, le=3650, default=30)
    """Days that metrics are kept."""
    retention_gb: Whole = key(ge=1, le=10_000, default=5)
    """Disk space on the head node for metrics, in GiB; when it is full, the oldest are deleted at any age."""
    idle_hours: Whole = key(ge=1, le=8760, default=12)
    """Idle hours after which a node with a price (`price_per_hour`) raises an alert."""
    receivers: tuple[Receiver, ...] = key(
        fix="write [{kind: mail, to: ops@example.org, sender: cluster@example.org, smarthost: "
        '"smtp.example.org:25"}], or kind slack or webhook and set its url',
        default=(),
    )
    """Receivers of alerts, through Alertmanager; default: alerts are only shown."""
    alertmanager_port: Port = ALERTMANAGER_PORT
    """With `receivers`: TCP port of Alertmanager, on the head node only."""

    grafana: Grafana | None = None
    """Grafana with dashboards; default: off."""

    def for_export(self) -> Self:
        """Return it without receivers and dashboards, which only the head node needs."""
        return self.model_copy(update={"receivers": (), "grafana": None})


def check_monitoring(monitoring: Monitoring, report: Report) -> None:
    """Report two daemons on one port of the head node, and invalid receivers."""
    for receiver in monitoring.receivers:
        check_receiver(receiver, report)
    daemons: list[tuple[Monitoring | Grafana, str, str]] = [
        (monitoring, "port", "Prometheus"),
        (monitoring, "exporter_port", "the node exporter"),
    ]
    if monitoring.grafana is not None:
        daemons.append((monitoring.grafana, "port", "Grafana"))
    for first, second in combinations(daemons, 2):
        port = getattr(*first[:2])
        if port != getattr(*second[:2]):
            continue
        # Blame the port that the config sets; if it sets both, the second one.
        blamed, user = (second, first) if second[1] in second[0].model_fields_set else (first, second)
        path = report.at(*blamed[:2])
        breaks = "both run on the head node, and one of them would not start"
        report.add(path, f"{report.value(path, port)} is also the port of {user[2]}", breaks, "write another port")
