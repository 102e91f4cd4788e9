"""The section `accounting`, and checks of it against the users and Slurm's settings."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from components.settings.problems import Report, suggest
from components.settings.section import Help, Section, key
from components.settings.types import Whole, refuse, word_set

if TYPE_CHECKING:
    from components.roles.slurm.settings import Slurm
    from components.roles.users.settings import User

# The account of users without `account`.
DEFAULT_ACCOUNT = "users"
# slurmdbd stores GPU minutes in 64 bits; no cluster can use more than this in a month.
MOST_GPU_HOURS = 10_000_000
# Keys of slurm.conf for accounting that tailrack does not run.
_EXTERNAL = word_set("accountingstoragetype accountingstoragehost accountingstorageport accountingstoragebackuphost")
_ENFORCE = "accountingstorageenforce"


def _account_name(value: str) -> str:
    if value in ("root", DEFAULT_ACCOUNT):
        refuse("is an account that every cluster already has")
    return _slurm_name(value)


def _qos_name(value: str) -> str:
    if value == "normal":
        refuse("is the QOS of every job that names none", None, "give it another name such as high")
    return _slurm_name(value)


def _slurm_name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", value) or value in ("all", "default", "none"):
        refuse("is not a name of lowercase letters, digits, '-' and '_' that starts with a letter")
    return value


_NAME = "a name of at most 40 lowercase letters, digits, '-' and '_'"
AccountName = Annotated[
    str, Field(max_length=40), AfterValidator(_account_name), Help(_NAME, "write a name such as vision")
]
QosName = Annotated[str, Field(max_length=40), AfterValidator(_qos_name), Help(_NAME, "write a name such as high")]
QosNames = Annotated[tuple[str, ...], Help("a list of names of tailrack:accounting.qos", "write names from that list")]
Limit = Annotated[
    Whole,
    Field(ge=1, le=MOST_GPU_HOURS),
    Help(fix="write a number, or leave it out for no limit", default_text="no limit"),
]


class Account(Section):
    """An account that jobs are charged to: a group, a project, a customer."""

    name: AccountName
    """The account's name; a job can choose it (`sbatch -A`)."""
    parent: str | None = key(
        wants="the name of another account", fix="write the name of an existing account, or leave it out", default=None
    )
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
    """Jobs that hold GPUs without using them."""

    tell_minutes: Whole = key(ge=10, le=10_080, default=30)
    """After so many minutes with an idle GPU, a running job gets a line in its stderr."""
    end_minutes: Whole = key(ge=0, le=10_080, default=0)
    """After so many minutes in which all its GPUs were idle, a job that got the message before ends; 0: never."""
    exempt_qos: QosNames = ()
    """QOS whose jobs may hold idle GPUs, such as one for interactive jobs."""


class Accounting(Section):
    """Records of jobs, and limits per account, QOS and user."""

    enabled: bool = True
    """Record the usage of every job (`sacct`) in a database on the head node; [day 2](day-2.md#accounting)."""
    accounts: tuple[Account, ...] = key(fix="write [{name: vision, gpu_hours: 500}]", default=())
    """Accounts for users."""
    qos: tuple[Qos, ...] = key(wants="a list of QOS", fix="write [{name: high, priority: 100}]", default=())
    """QOS for users, besides `normal`, which everyone has."""
    keep_jobs_months: Whole = key(ge=0, le=1200, default=24)
    """Months that jobs stay in the database; 0: forever."""
    keep_steps_months: Whole = key(ge=0, le=1200, default=12)
    """Months that job steps, most of the data, stay in the database; 0: forever."""
    unused_gpus: UnusedGpus | None = None
    """Tell users whose jobs hold [unused GPUs](day-2.md#accounting), and end such jobs; default: off."""


def check_accounting(accounting: Accounting, users: Sequence[User], slurm: Slurm, health: bool, report: Report) -> None:
    """Report unknown names, cycles, limits without accounting, and settings of external accounting."""
    _check_keys(slurm, accounting.enabled, report)
    _check_named(accounting.accounts, "account", report)
    _check_named(accounting.qos, "QOS", report)
    accounts = {account.name: [account.parent] if account.parent is not None else [] for account in accounting.accounts}
    for account in accounting.accounts:
        _check_names_exist(account, "parent", accounts[account.name], accounts, "account", report)
    _check_cycles(accounting.accounts, "parent", accounts, "the accounts would have no top", report)
    qos = {service.name: service.preempts for service in accounting.qos}
    for service in accounting.qos:
        _check_names_exist(service, "preempts", service.preempts, qos, "QOS", report)
    _check_cycles(accounting.qos, "preempts", qos, "their jobs would preempt each other forever", report)
    if (unused := accounting.unused_gpus) is not None:
        _check_names_exist(unused, "exempt_qos", unused.exempt_qos, {*qos, "normal"}, "QOS", report)
        _check_unused(unused, {"accounting": accounting.enabled, "health": health}, report)
    for user in users:
        charged = () if user.account is None else (user.account,)
        _check_names_exist(user, "account", charged, {*accounts, DEFAULT_ACCOUNT}, "account", report)
        _check_names_exist(user, "qos", user.qos, qos, "QOS", report)
        for name in (
            () if accounting.enabled else sorted({"account", "gpu_hours", "max_jobs", "qos"} & user.model_fields_set)
        ):
            breaks = "the usage of jobs would not be recorded"
            fix = "remove it, or set tailrack:accounting.enabled to true"
            report.add(report.at(user, name), "is set while accounting is off", breaks, fix)


def _check_unused(unused: UnusedGpus, on: Mapping[str, bool], report: Report) -> None:
    tell, end, path = unused.tell_minutes, unused.end_minutes, report.at(unused, "end_minutes")
    if 0 < end <= tell:
        problem = f"{report.value(path, end)} is not more than tell_minutes ({tell})"
        report.add(path, problem, "jobs would end without a warning", f"write more than {tell}, or 0 for never")
    for name in (section for section, enabled in on.items() if not enabled):
        problem, breaks = f"is set while {name} is off", "no job's GPUs would be sampled"
        report.add(report.at(unused), problem, breaks, f"remove it, or set tailrack:{name}.enabled to true")


def _check_keys(slurm: Slurm, on: bool, report: Report) -> None:
    for key_name in slurm.settings if on else ():
        name, path = key_name.lower(), report.at(slurm, "settings", key_name)
        if name in _EXTERNAL:
            breaks = "jobs would be recorded twice, or not at all"
            fix = "remove it, or write tailrack:accounting: {enabled: false} to set it yourself"
            report.add(path, "is set by tailrack, which runs the cluster's accounting", breaks, fix)
        elif name == _ENFORCE:
            breaks = "Slurm would reject users before they have an account"
            fix = "remove it; tailrack enforces every limit in the config"
            report.add(path, "is set by tailrack as soon as every user has an account", breaks, fix)


def _check_named(sections: Sequence[Account | Qos], kind: str, report: Report) -> None:
    names: set[str] = set()
    for section in sections:
        if section.name in names:
            path = report.at(section, "name")
            problem = f"{report.value(path, section.name)} is also the name of another {kind}"
            report.add(path, problem, "the limits of both would apply", "rename one of them")
        names.add(section.name)


def _check_names_exist(
    section: Section, name: str, written: Sequence[str], valid: Collection[str], kind: str, report: Report
) -> None:
    for index, item in enumerate(written):
        if item not in valid:
            path = (
                report.at(section, name) if isinstance(getattr(section, name), str) else report.at(section, name, index)
            )
            fix = partial(suggest, item, valid) if valid else f"add it to tailrack:accounting, or leave {name} out"
            report.add(path, f"{report.value(path, item)} is no {kind} of the config", "slurmdbd would reject it", fix)


def _check_cycles(
    sections: Sequence[Account | Qos], name: str, successors: Mapping[str, Sequence[str]], breaks: str, report: Report
) -> None:
    for section in sections:
        start = section.name
        routes = [[start]]
        visited: set[str] = set()
        while routes:
            route = routes.pop()
            for successor in successors.get(route[-1], ()):
                if successor == start:
                    problem = f"forms a cycle ({' -> '.join([*route, start])})"
                    report.add(report.at(section, name), problem, breaks, "remove one of these")
                    return
                if successor not in visited:
                    visited.add(successor)
                    routes.append([*route, successor])
