"""The section `monitoring`: ports, retention, and alert receivers with the keys that each kind needs."""

from itertools import combinations
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr

from components.settings.mask_secrets import MASK
from components.settings.problems import Report, Stack
from components.settings.rules import check_both
from components.settings.section import Help, Section, key
from components.settings.types import HOST, HOST_PORT, Archive, Checksum, Port, Whole, full, must
from components.settings.types import PORT as PORT_TEXT


class Grafana(Section):
    """Grafana with dashboards, on the head node. No distribution packages it, so the config names a release."""

    source: Archive = key(fix="copy the address from Grafana's download page: linux-amd64 or arm64, like the head node")
    """Grafana's archive for Linux: the address of the .tar.gz on its download page, or a path on the head node."""
    sha256: Checksum
    """SHA-256 of that archive, from the same page."""
    port: Port = 3000
    """TCP port of Grafana on the head node's tailnet address."""


PORT, EXPORTER_PORT, ALERTMANAGER_PORT = 9090, 9100, 9093
# No braces in a mail address: Alertmanager would read them as a template.
ADDRESS = rf"^[A-Za-z0-9._%+-]{{1,64}}@{HOST}$"
_URL = rf"https?://([!-.0-?A-Z\[-~]{{1,200}}@)?{HOST_PORT}([/?][!-~]{{0,2000}})?"
Url = Annotated[
    SecretStr,
    must(
        full(_URL),
        "is not an http:// or https:// address of plain characters, with a port from 1 to 65535 or none, such as "
        "https://example.com/id",
    ),
    Help("an http:// or https:// address"),
]
Password = Annotated[
    SecretStr,
    must(
        full(r"[!-~]([ -~]{0,1022}[!-~])?"), "is empty or too long, or has line breaks, blanks at an end or odd letters"
    ),
]
MailAddress = Annotated[str, Field(pattern=ADDRESS), Help("a mail address", "write one such as ops@example.org")]
MailUser = Annotated[str, Field(pattern=r"^[!-~]{1,200}$"), Help("a name without blanks", "write the account's name")]
Smarthost = Annotated[str, Field(pattern=f"^{HOST}{PORT_TEXT}$"), Help("HOST:PORT", "write mail.example.org:587")]


class MailServer(Section):
    """A mail server, the log-in there, and the sender of the messages that it gets."""

    user: MailUser | None = None
    """The account at the mail server; default: no log-in."""
    password: Password | None = None
    """The account's password."""
    encrypted: bool = True
    """Reject a mail server without encryption; false is only for a server on your own network, without a password."""
    sender: MailAddress
    """The sender's address."""
    smarthost: Smarthost
    """The mail server, as HOST:PORT; for reports about jobs, port 465 uses TLS from the start."""

    def check(self, stack: Stack, report: Report) -> None:
        check_both(self, "user", "password", "the mail server would reject the log-in", report)
        if not self.encrypted and self.password is not None:
            problem, breaks = "is false with a password", "anyone between the two machines could read the password"
            report.add((self, "encrypted"), problem, breaks, "write true, or remove user and password")


class MailReceiver(MailServer):
    """A person who gets alerts by mail."""

    kind: Literal["mail"]
    """Send mail."""
    to: MailAddress
    """The recipient's address."""


class Webhook(Section):
    """An address that messages are posted to."""

    kind: Literal["webhook", "slack"]
    """`webhook` (the message is posted as JSON) or `slack`."""
    url: Url
    """The address. It allows anyone to post there."""

    def check(self, stack: Stack, report: Report) -> None:
        if self.kind == "slack" and not self.url.get_secret_value().startswith("https://"):
            problem, breaks = f"{MASK} is not an https:// address", "Slack would reject every message"
            fix = "copy the address of the incoming webhook: https://hooks.slack.com/..."
            report.add((self, "url"), problem, breaks, fix)


Receiver = Webhook | MailReceiver


class Monitoring(Section):
    """Metrics of all machines, collected on the head node; without this section there are none."""

    port: Port = PORT
    """TCP port of Prometheus on the head node's tailnet address."""
    exporter_port: Port = EXPORTER_PORT
    """TCP port of the node exporter on every machine's tailnet address."""
    retention_days: Whole = key(ge=1, le=3650, default=30)
    """Days that metrics are kept."""
    retention_gb: Whole = key(ge=1, le=10_000, default=5)
    """Disk space on the head node for metrics, in GiB; when it is full, the oldest are deleted."""
    idle_hours: Whole = key(ge=1, le=8760, default=12)
    """Idle hours after which a node with a price (`price_per_hour`) raises an alert."""
    receivers: tuple[Annotated[Receiver, Field(discriminator="kind")], ...] = key(
        fix='write [{kind: mail, to: a@b.org, sender: c@b.org, smarthost: "b.org:25"}], or slack or webhook', default=()
    )
    """Receivers of alerts, through Alertmanager; default: alerts are only shown."""
    alertmanager_port: Port = ALERTMANAGER_PORT
    """With `receivers`: TCP port of Alertmanager, on the head node only."""
    grafana: Grafana | None = None

    def for_export(self) -> Self:
        """Return it without receivers and dashboards, which only the head node needs."""
        return self.model_copy(update={"receivers": (), "grafana": None})

    def check(self, stack: Stack, report: Report) -> None:
        parts: list[tuple[Any, str, str]] = [(self, "port", "Prometheus"), (self, "exporter_port", "the node exporter")]
        parts += [(self.grafana, "port", "Grafana"), (stack.config.mlflow, "port", "MLflow")]
        for first, second in combinations((part for part in parts if part[0]), 2):
            if getattr(*first[:2]) == getattr(*second[:2]):
                # Blame the port that the config sets; if it sets both, the second one.
                blamed, user = (second, first) if second[1] in second[0].model_fields_set else (first, second)
                breaks = "both run on the head node, and one of them would not start"
                report.bad(blamed[:2], f"is also the port of {user[2]}", breaks, "write another port")
