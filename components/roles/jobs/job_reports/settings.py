"""The section `job_reports`: the mail server and the channels for reports about jobs, and users' own receivers."""

from typing import Self

from components.roles.monitoring.monitoring.settings import MailServer, Webhook
from components.settings.problems import Report, Stack
from components.settings.rules import check_unique
from components.settings.section import Section, key
from components.settings.types import PartitionName


class Channel(Webhook):
    """A webhook or a Slack channel that users[].notify can name."""

    name: PartitionName
    """Its name, for `users[].notify`."""


class JobReports(Section):
    """Reports about jobs, sent from the head node; without this section only a program `mail` of yours sends any."""

    mail: MailServer | None = None
    """The mail server for `sbatch --mail-type`; default: no mail."""
    channels: tuple[Channel, ...] = key(fix="write [{name: vision, kind: slack}], then set its url", default=())
    """Webhooks and Slack channels for `users[].notify`."""

    def for_export(self) -> Self:
        """Return it without servers and channels, which only the head node needs."""
        return self.model_copy(update={"mail": None, "channels": ()})

    def check(self, stack: Stack, report: Report) -> None:
        if self.mail is None and not self.channels:
            fix = 'write mail: {sender: cluster@example.org, smarthost: "smtp.example.org:587"}, or remove the section'
            report.add((self,), "has neither mail nor channels", "no one would get a report about a job", fix)
        check_unique(self.channels, "name", "is also the name of {}", "users[].notify would be ambiguous", report)
