"""The section `budget`: how much the machines may cost in a month, and what happens then."""

from collections.abc import Sequence
from typing import Annotated, Self

from pydantic import AfterValidator, Field

from components.roles.job_reports.settings import is_receiver
from components.settings.draft import Draft, suggest
from components.settings.problems import Report, child_path
from components.settings.section import Section, key, number, yes_no
from components.settings.types import Number, Whole, refuse

MOST = 1_000_000_000_000


def _receiver(value: str) -> str:
    if not is_receiver(value):
        refuse("is neither a mail address nor a channel's name")
    return value


class Budget(Section):
    """A monthly budget of the cluster with all its pools."""

    per_month: Annotated[Number, Field(ge=1, le=MOST)] = key(
        "amount that the machines may cost in a calendar month (UTC), in the stack's `currency`",
        wants=f"an amount from 1 to {MOST}",
        breaks="no one would learn that the budget is spent",
        fix="write the amount of a month, such as 2000",
    )
    tell_percent: Whole = number(
        "the share of the budget at which a first message is sent, in percent; a second one is sent at 100",
        1,
        99,
        breaks="the first message would come too late or never",
        default=80,
    )
    hold: bool = yes_no(
        "when the budget is spent, let new jobs wait until the month ends or the budget is raised", default=False
    )
    exempt_qos: tuple[str, ...] = key(
        "with `hold`: QOS whose jobs start nevertheless",
        wants="a list of names of tailrack:accounting.qos",
        breaks="no job could start when the budget is spent",
        fix="write names from that list",
        default=(),
    )
    notify: tuple[Annotated[str, AfterValidator(_receiver)], ...] = key(
        "receivers of these messages besides those of `monitoring`: mail addresses and channels of `job_reports`",
        wants="a list of mail addresses and names of channels",
        breaks="no one would get the messages",
        fix="write [ops@example.org], or the name of a channel of tailrack:job_reports",
        max_length=5,
        default=(),
    )

    def for_export(self) -> Self:
        """Return it without receivers, which only the head node needs."""
        return self.model_copy(update={"notify": ()})


def check_budget(budget: Draft, accounting: Draft, reports: Draft | None, report: Report) -> None:
    """Report QOS and receivers that do not exist."""
    names = {name for qos in accounting.items("qos") if (name := qos.text("name")) is not None}
    for path, name in _texts(budget, "exempt_qos"):
        if budget.value("hold") is not True:
            problem, fix = f"{report.value(path, name)} is set without hold", "remove it, or write hold: true"
            report.add(path, problem, "all jobs start in any case", fix)
        elif name not in names:
            fix = suggest(name, names) if names else "add it to tailrack:accounting.qos"
            report.add(path, f"{report.value(path, name)} is no QOS of the config", "its jobs would wait", fix)
    channels = {name for channel in reports.items("channels") if (name := channel.text("name"))} if reports else set()
    for path, receiver in _texts(budget, "notify"):
        shown = report.value(path, receiver)
        if reports is None:
            problem, fix = f"{shown} is set without tailrack:job_reports", "write that section, or remove notify"
        elif "@" in receiver and reports.raw.get("mail") is None:
            problem, fix = f"{shown} is a mail address, and tailrack:job_reports has no mail server", "write mail there"
        elif "@" not in receiver and receiver not in channels:
            problem = f"{shown} is no channel of tailrack:job_reports"
            fix = suggest(receiver, channels) if channels else "add the channel there, or write a mail address"
        else:
            continue
        report.add(path, problem, "no one would get the message there", fix)


def _texts(section: Draft, name: str) -> Sequence[tuple[str, str]]:
    values = section.values.get(name)
    path = section.path_of(name)
    return [(child_path(path, index), value) for index, value in enumerate(values)] if isinstance(values, tuple) else []
