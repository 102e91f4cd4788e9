"""The section `accounting`, and checks of it against the users and Slurm's settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from components.settings.draft import Draft, suggest
from components.settings.problems import Report, child_path
from components.settings.section import Section, key, number, yes_no
from components.settings.types import Whole, refuse, word_set

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


AccountName = Annotated[str, Field(max_length=40), AfterValidator(_account_name)]
QosName = Annotated[str, Field(max_length=40), AfterValidator(_qos_name)]
Limit = Annotated[Whole, Field(ge=1, le=MOST_GPU_HOURS)]


def account_key() -> Any:
    """Return the key of a user's account."""
    return key(
        "the account that this user's jobs are charged to",
        wants="the name of one of tailrack:accounting.accounts",
        breaks="no account would be charged for the jobs",
        fix=f"write one of their names, or leave it out to use `{DEFAULT_ACCOUNT}`",
        default_text=f"`{DEFAULT_ACCOUNT}`",
        default=None,
    )


def gpu_hours_key(group: str) -> Any:
    """Return the key of a limit of GPU hours."""
    return _limit_key(f"most GPU hours of {group} per calendar month", "hours")


def max_jobs_key(group: str) -> Any:
    """Return the key of a limit of running jobs."""
    return _limit_key(f"most running jobs of {group}; further jobs wait", "number of jobs")


def _limit_key(description: str, unit: str) -> Any:
    return key(
        description,
        wants=f"a whole number from 1 to {MOST_GPU_HOURS}",
        breaks="Slurm would reject the limit, or no job would ever start",
        fix=f"write the {unit}, or leave it out for no limit",
        default_text="no limit",
        default=None,
    )


def qos_names_key(description: str) -> Any:
    """Return a key that holds names of QOS."""
    return key(
        description,
        wants="a list of names of tailrack:accounting.qos",
        breaks="Slurm would reject it",
        fix="write names from that list",
        default=(),
    )


class Account(Section):
    """An account that jobs are charged to: a group, a project, a customer."""

    name: AccountName = key(
        "the account's name; a job can choose it (`sbatch -A`)",
        wants="a name of at most 40 lowercase letters, digits, '-' and '_'",
        breaks="slurmdbd could not store it",
        fix="write a name such as vision",
    )
    parent: str | None = key(
        "the account above it, whose limits also apply to it",
        wants="the name of another account",
        breaks="its limits would not count for any account",
        fix="write the name of an existing account, or leave it out",
        default=None,
    )
    fair_share: Whole = number(
        "its share of the cluster, compared with the other accounts of the same parent",
        1,
        100_000,
        breaks="Slurm would have no share for it",
        default=1,
    )
    gpu_hours: Limit | None = gpu_hours_key("all its users together")
    max_jobs: Limit | None = max_jobs_key("all its users together")


class Qos(Section):
    """A quality of service, which a job can request with `sbatch -q`."""

    name: QosName = key(
        "its name; a job requests it with `sbatch -q`",
        wants="a name of at most 40 lowercase letters, digits, '-' and '_'",
        breaks="slurmdbd could not store it",
        fix="write a name such as high",
    )
    priority: Whole = number(
        "jobs with a higher priority start first; jobs without a QOS have 0",
        0,
        10_000,
        breaks="Slurm would reject it",
        default=0,
    )
    gpu_hours: Limit | None = gpu_hours_key("all its jobs together")
    max_jobs: Limit | None = max_jobs_key("each of its users")
    preempts: tuple[str, ...] = qos_names_key(
        "QOS whose jobs are requeued when a job of this QOS needs their resources"
    )


class UnusedGpus(Section):
    """Jobs that hold GPUs without using them."""

    tell_minutes: Whole = number(
        "after so many minutes with an idle GPU, a running job gets a line in its stderr",
        10,
        10_080,
        breaks="jobs that only load data would be told too",
        default=30,
    )
    end_minutes: Whole = number(
        "after so many minutes in which all its GPUs were idle, a job that got the message before ends; 0: never",
        0,
        10_080,
        breaks="jobs would end too early or never",
        default=0,
    )
    exempt_qos: tuple[str, ...] = qos_names_key("QOS whose jobs may hold idle GPUs, such as one for interactive jobs")


class Accounting(Section):
    """Records of jobs, and limits per account, QOS and user."""

    enabled: bool = yes_no(
        "record the usage of every job (`sacct`) in a database on the head node; [day 2](day-2.md#accounting)",
        default=True,
    )
    accounts: tuple[Account, ...] = key(
        "accounts for users",
        wants="a list of accounts",
        breaks="there would be no accounts",
        fix="write [{name: vision, gpu_hours: 500}]",
        default=(),
    )
    qos: tuple[Qos, ...] = key(
        "QOS for users, besides `normal`, which everyone has",
        wants="a list of QOS",
        breaks="there would be no QOS",
        fix="write [{name: high, priority: 100}]",
        default=(),
    )
    keep_jobs_months: Whole = number(
        "months that jobs stay in the database; 0: forever", 0, 1200, breaks="slurmdbd would not start", default=24
    )
    keep_steps_months: Whole = number(
        "months that job steps, most of the data, stay in the database; 0: forever",
        0,
        1200,
        breaks="slurmdbd would not start",
        default=12,
    )
    unused_gpus: UnusedGpus | None = key(
        "tell users whose jobs hold [unused GPUs](day-2.md#accounting), and end such jobs; default: off", default=None
    )


def check_accounting(accounting: Draft, users: Sequence[Draft], slurm: Draft, health: Draft, report: Report) -> None:
    """Report unknown names, cycles, limits without accounting, and settings of external accounting."""
    on = accounting.value("enabled") is not False
    _check_keys(slurm, on, report)
    _check_named(accounting.items("accounts"), "account", report)
    _check_named(accounting.items("qos"), "QOS", report)
    accounts, qos = _names(accounting.items("accounts")), _names(accounting.items("qos"))
    parents: dict[str, Sequence[str]] = {}
    for account in accounting.items("accounts"):
        _check_names_exist(account, "parent", accounts, "account", report)
        parents[account.text("name") or ""] = [account.text("parent") or ""]
    _check_cycles(accounting.items("accounts"), "parent", parents, "the accounts would have no top", report)
    preempts = {}
    for service in accounting.items("qos"):
        _check_names_exist(service, "preempts", qos, "QOS", report)
        preempts[service.text("name") or ""] = _list_at(service, "preempts")
    breaks = "their jobs would preempt each other forever"
    _check_cycles(accounting.items("qos"), "preempts", preempts, breaks, report)
    if isinstance(unused := accounting.values.get("unused_gpus"), Draft):
        off = [name for name, section in (("accounting", accounting), ("health", health)) if _is_off(section)]
        _check_unused(unused, qos, off, report)
    for user in users:
        _check_names_exist(user, "account", {*accounts, DEFAULT_ACCOUNT}, "account", report)
        _check_names_exist(user, "qos", qos, "QOS", report)
        for name in () if on else sorted({"account", "gpu_hours", "max_jobs", "qos"} & user.raw.keys()):
            breaks = "the usage of jobs would not be recorded"
            fix = "remove it, or set tailrack:accounting.enabled to true"
            report.add(user.path_of(name), "is set while accounting is off", breaks, fix)


def _is_off(section: Draft) -> bool:
    return section.value("enabled") is False


def _check_unused(unused: Draft, qos: set[str], off: Sequence[str], report: Report) -> None:
    _check_names_exist(unused, "exempt_qos", {*qos, "normal"}, "QOS", report)
    tell, end, path = unused.value("tell_minutes"), unused.value("end_minutes"), unused.path_of("end_minutes")
    if isinstance(tell, int) and isinstance(end, int) and 0 < end <= tell:
        problem = f"{report.value(path, end)} is not more than tell_minutes ({tell})"
        report.add(path, problem, "jobs would end without a warning", f"write more than {tell}, or 0 for never")
    for name in off:
        problem, breaks = f"is set while {name} is off", "no job's GPUs would be sampled"
        report.add(unused.path, problem, breaks, f"remove it, or set tailrack:{name}.enabled to true")


def _names(sections: Iterable[Draft]) -> set[str]:
    return {name for section in sections if (name := section.text("name")) is not None}


def _list_at(section: Draft, name: str) -> Sequence[str]:
    value = section.value(name)
    return [item for item in value if isinstance(item, str)] if isinstance(value, tuple) else []


def _check_keys(slurm: Draft, on: bool, report: Report) -> None:
    settings = slurm.raw.get("settings")
    for key_name in settings if isinstance(settings, Mapping) else ():
        name, path = str(key_name).lower(), child_path(slurm.path_of("settings"), str(key_name))
        if on and name in _EXTERNAL:
            breaks = "jobs would be recorded twice, or not at all"
            fix = "remove it, or write tailrack:accounting: {enabled: false} to set it yourself"
            report.add(path, "is set by tailrack, which runs the cluster's accounting", breaks, fix)
        elif on and name == _ENFORCE:
            breaks = "Slurm would reject users before they have an account"
            fix = "remove it; tailrack enforces every limit in the config"
            report.add(path, "is set by tailrack as soon as every user has an account", breaks, fix)


def _check_named(sections: Sequence[Draft], kind: str, report: Report) -> None:
    paths: dict[str, str] = {}
    for section in sections:
        name = section.text("name")
        if name is not None and paths.setdefault(name, section.path) != section.path:
            path = section.path_of("name")
            problem = f"{report.value(path, name)} is also the name of another {kind}"
            report.add(path, problem, "the limits of both would apply", "rename one of them")


def _check_names_exist(section: Draft, name: str, valid: set[str], kind: str, report: Report) -> None:
    text = section.text(name)
    for index, item in enumerate([text] if text is not None else _list_at(section, name)):
        if item not in valid:
            path = section.path_of(name) if text is not None else child_path(section.path_of(name), index)
            fix = partial(suggest, item, valid) if valid else f"add it to tailrack:accounting, or leave {name} out"
            report.add(path, f"{report.value(path, item)} is no {kind} of the config", "slurmdbd would reject it", fix)


def _check_cycles(
    sections: Sequence[Draft], name: str, successors: Mapping[str, Sequence[str]], breaks: str, report: Report
) -> None:
    for section in sections:
        start = section.text("name")
        if start is None:
            continue
        routes = [[start]]
        visited: set[str] = set()
        while routes:
            route = routes.pop()
            for successor in successors.get(route[-1], ()):
                if successor == start:
                    problem = f"forms a cycle ({' -> '.join([*route, start])})"
                    report.add(section.path_of(name), problem, breaks, "remove one of these")
                    return
                if successor not in visited:
                    visited.add(successor)
                    routes.append([*route, successor])
