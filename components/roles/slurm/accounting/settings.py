"""The section `accounting`, and checks of it against the users and Slurm's settings."""

from collections.abc import Collection, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Annotated

from pydantic import Field

from components.settings.problems import Report, Stack
from components.settings.rules import check_known, check_on, check_unique
from components.settings.section import Help, Section, key
from components.settings.types import Whole, full, must

# The account of users without `account`.
DEFAULT_ACCOUNT = "users"
# slurmdbd stores GPU minutes in 64 bits; no cluster can use more than this in a month.
MOST_GPU_HOURS = 10_000_000
_NAME = "a name of at most 40 lowercase letters, digits, '-' and '_'"
_plain = must(
    full(r"(?!(all|default|none)$)[a-z][a-z0-9_-]*"),
    "is no name of lowercase letters, digits, '-' and '_' after a letter",
)
AccountName = Annotated[
    str,
    Field(max_length=40),
    must(lambda name: name not in ("root", DEFAULT_ACCOUNT), "is an account of every cluster"),
    _plain,
    Help(_NAME, "write a name such as vision"),
]
QosName = Annotated[
    str,
    Field(max_length=40),
    must(lambda name: name != "normal", "is the QOS of every job that names none", fix="write another such as high"),
    _plain,
    Help(_NAME, "write a name such as high"),
]
QosNames = Annotated[tuple[str, ...], Help("a list of names of tailrack:accounting.qos", "write names from that list")]
Limit = Annotated[
    Whole, Field(ge=1, le=MOST_GPU_HOURS), Help(fix="write a number, or leave it out", default_text="no limit")
]


class Account(Section):
    """An account that jobs are charged to: a group, a project, a customer."""

    name: AccountName
    """The account's name; a job can choose it (`sbatch -A`)."""
    parent: str | None = key("the name of another account", "write its name, or leave it out", default=None)
    """The account above it, whose limits also apply to it."""
    fair_share: Whole = key(ge=1, le=100_000, default=1)
    """Its share of the cluster, compared with the other accounts of the same parent."""
    gpu_hours: Limit | None = None
    """Most GPU hours of all its users together per calendar month."""
    max_jobs: Limit | None = None
    """Most running jobs of all its users together; further jobs wait."""


class Qos(Section):
    """A quality of service, which a job can request with `sbatch -q`."""

    name: QosName
    """Its name; a job requests it with `sbatch -q`."""
    priority: Whole = key(ge=0, le=10_000, default=0)
    """Jobs with a higher priority start first; jobs without a QOS have 0."""
    gpu_hours: Limit | None = None
    """Most GPU hours of all its jobs together per calendar month."""
    max_jobs: Limit | None = None
    """Most running jobs of each of its users; further jobs wait."""
    preempts: QosNames = ()
    """QOS whose jobs are requeued when a job of this QOS needs their resources."""


class UnusedGpus(Section):
    """Tell users whose jobs hold [unused GPUs](day-2.md#accounting), and end such jobs."""

    tell_minutes: Whole = key(ge=10, le=10_080, default=30)
    """After so many minutes with an idle GPU, a running job gets a line in its stderr."""
    end_minutes: Whole = key(ge=0, le=10_080, default=0)
    """After so many minutes in which all its GPUs were idle, a job that got the message before ends; 0: never."""
    exempt_qos: QosNames = ()
    """QOS whose jobs may hold idle GPUs, such as one for interactive jobs."""

    def check(self, stack: Stack, report: Report) -> None:
        if 0 < self.end_minutes <= self.tell_minutes:
            problem = f"is not more than tell_minutes ({self.tell_minutes})"
            fix = f"write more than {self.tell_minutes}, or 0 for never"
            report.bad((self, "end_minutes"), problem, "jobs would end without a warning", fix)


class Accounting(Section):
    """Records of jobs, and limits per account, QOS and user."""

    enabled: bool = True
    """Record the usage of every job (`sacct`) in a database on the head node; [day 2](day-2.md#accounting)."""
    accounts: tuple[Account, ...] = key(fix="write [{name: vision, gpu_hours: 500}]", default=())
    """Accounts for users."""
    qos: tuple[Qos, ...] = key("a list of QOS", "write [{name: high, priority: 100}]", default=())
    """QOS for users, besides `normal`, which everyone has."""
    keep_jobs_months: Whole = key(ge=0, le=1200, default=24)
    """Months that jobs stay in the database; 0: forever."""
    keep_steps_months: Whole = key(ge=0, le=1200, default=12)
    """Months that job steps, most of the data, stay in the database; 0: forever."""
    unused_gpus: UnusedGpus | None = None

    def check(self, stack: Stack, report: Report) -> None:
        accounts = {account.name: [account.parent] if account.parent is not None else [] for account in self.accounts}
        qos = {service.name: service.preempts for service in self.qos}
        for sections, kind in ((self.accounts, "account"), (self.qos, "QOS")):
            check_unique(sections, "name", f"is the name of another {kind}", "the limits of both would apply", report)
        for account in self.accounts:
            _check_exists(account, "parent", accounts, "account", report)
        _check_cycles(self.accounts, "parent", accounts, "the accounts would have no top", report)
        for service in self.qos:
            _check_exists(service, "preempts", qos, "QOS", report)
        _check_cycles(self.qos, "preempts", qos, "their jobs would preempt each other forever", report)
        if (unused := self.unused_gpus) is not None:
            _check_exists(unused, "exempt_qos", {*qos, "normal"}, "QOS", report)
            for role, enabled in (("accounting", self.enabled), ("health", stack.config.health.enabled)):
                check_on((unused,), role, enabled, "no job's GPUs would be sampled", report)
        for user in stack.config.users:
            _check_exists(user, "account", {*accounts, DEFAULT_ACCOUNT}, "account", report)
            _check_exists(user, "qos", qos, "QOS", report)
            for name in sorted({"account", "gpu_hours", "max_jobs", "qos"} & user.model_fields_set):
                check_on((user, name), "accounting", self.enabled, "the usage of jobs would not be recorded", report)


def _check_exists(section: Section, name: str, valid: Collection[str], kind: str, report: Report) -> None:
    fix = f"add it to tailrack:accounting, or leave {name} out"
    check_known(section, name, valid, f"is no {kind} of the config", "slurmdbd would reject it", report, fix)


def _check_cycles(
    sections: Sequence[Account | Qos], name: str, successors: Mapping[str, Sequence[str]], breaks: str, report: Report
) -> None:
    try:
        TopologicalSorter(successors).prepare()
    except CycleError as error:
        # It lists each name before the one that leads to it.
        cycle = error.args[1][::-1]
        section = next(section for section in sections if section.name == cycle[0])
        problem = f"forms a cycle ({' -> '.join(cycle)})"
        report.add((section, name), problem, breaks, "remove one of these")
