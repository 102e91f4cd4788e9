"""Accounting: the section `accounting`, and what must hold between it and the users."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from components.settings.draft import Draft, meant
from components.settings.problems import Report, below
from components.settings.section import Section, key, number, yes_no
from components.settings.types import Whole, refuse, words

# The account of users who are given none.
DEFAULT_ACCOUNT = "users"
# Minutes of a GPU are what slurmdbd keeps, as 64 bits; beyond this no cluster gets in a month.
MOST_GPU_HOURS = 10_000_000
# What slurm.conf says of accounting where somebody keeps it himself.
_OTHERS = words("accountingstoragetype accountingstoragehost accountingstorageport accountingstoragebackuphost")
_ENFORCE = "accountingstorageenforce"


def _account_name(value: str) -> str:
    if value in ("root", DEFAULT_ACCOUNT):
        refuse("is an account that every cluster has already")
    return _slurm_name(value)


def _qos_name(value: str) -> str:
    if value == "normal":
        refuse("is the QOS that every job has already where it names none", None, "give it another name such as high")
    return _slurm_name(value)


def _slurm_name(value: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_-]*", value) or value in ("all", "default", "none"):
        refuse("is not a name of lowercase letters, digits, '-' and '_' that starts with a letter")
    return value


AccountName = Annotated[str, Field(max_length=40), AfterValidator(_account_name)]
QosName = Annotated[str, Field(max_length=40), AfterValidator(_qos_name)]
Limit = Annotated[Whole, Field(ge=1, le=MOST_GPU_HOURS)]


def account_key() -> Any:
    """The key by which a user says the account that the jobs are counted for."""
    return key(
        "the account that the jobs are counted for",
        wants="the name of one of tailrack:accounting.accounts",
        breaks="nobody would know whose jobs they are",
        fix=f"write one of their names, or leave it out to have `{DEFAULT_ACCOUNT}`",
        otherwise=f"`{DEFAULT_ACCOUNT}`",
        default=None,
    )


def gpu_hours_key(whose: str) -> Any:
    """The key of a limit of GPU hours."""
    return _limit_key(f"GPU hours that {whose} may use in a calendar month", "hours")


def max_jobs_key(whose: str) -> Any:
    """The key of a limit of running jobs."""
    return _limit_key(f"jobs of {whose} that may run at once; more of them wait", "number of jobs")


def _limit_key(description: str, unit: str) -> Any:
    return key(
        description,
        wants=f"a whole number from 1 to {MOST_GPU_HOURS}",
        breaks="Slurm would refuse the limit, or no job would ever start",
        fix=f"write the {unit}, or leave it out for no limit",
        otherwise="no limit",
        default=None,
    )


def qos_names_key(description: str) -> Any:
    """A key that holds names of QOS."""
    return key(
        description,
        wants="a list of names of tailrack:accounting.qos",
        breaks="Slurm would refuse it",
        fix="write names that are there",
        default=(),
    )


class Account(Section):
    """Whom jobs are counted for: a group, a project, a customer."""

    name: AccountName = key(
        "the account's name, which jobs may say (`sbatch -A`)",
        wants="a name of at most 40 lowercase letters, digits, '-' and '_'",
        breaks="slurmdbd could not keep it",
        fix="write a name such as vision",
    )
    parent: str | None = key(
        "the account that it is part of, and under whose limits it is too",
        wants="the name of another account",
        breaks="its limits would be nobody's",
        fix="write a name that is there, or leave it out",
        default=None,
    )
    fair_share: Whole = number(
        "its share of the cluster, beside those of the other accounts of the same parent",
        1,
        100_000,
        breaks="Slurm would have no share for it",
        default=1,
    )
    gpu_hours: Limit | None = gpu_hours_key("its users together")
    max_jobs: Limit | None = max_jobs_key("its users together")


class Qos(Section):
    """A quality of service: what a job may ask for by `sbatch -q`."""

    name: QosName = key(
        "its name, which jobs say (`sbatch -q`)",
        wants="a name of at most 40 lowercase letters, digits, '-' and '_'",
        breaks="slurmdbd could not keep it",
        fix="write a name such as high",
    )
    priority: Whole = number(
        "jobs of a higher one start first; that of jobs without a QOS is 0",
        0,
        10_000,
        breaks="Slurm would refuse it",
        default=0,
    )
    gpu_hours: Limit | None = gpu_hours_key("its jobs together")
    max_jobs: Limit | None = max_jobs_key("each user in it")
    preempts: tuple[str, ...] = qos_names_key(
        "QOS whose jobs go back to the queue when a job of this one needs their place"
    )


class Accounting(Section):
    """What jobs have used, and who may use how much."""

    enabled: bool = yes_no(
        "keep what every job used (`sacct`), in a database on the head node; [day 2](day-2.md#accounting)", default=True
    )
    accounts: tuple[Account, ...] = key(
        "accounts that users can have",
        wants="a list of accounts",
        breaks="there would be none",
        fix="write [{name: vision, gpu_hours: 500}]",
        default=(),
    )
    qos: tuple[Qos, ...] = key(
        "QOS that users can have, besides `normal`, which everybody has",
        wants="a list of QOS",
        breaks="there would be none",
        fix="write [{name: high, priority: 100}]",
        default=(),
    )
    keep_jobs_months: Whole = number(
        "how long jobs stay in the database; 0 for ever", 0, 1200, breaks="slurmdbd would not start", default=24
    )
    keep_steps_months: Whole = number(
        "how long their steps do, which are most of it; 0 for ever",
        0,
        1200,
        breaks="slurmdbd would not start",
        default=12,
    )


def check_accounting(accounting: Draft, users: Sequence[Draft], slurm: Draft, report: Report) -> None:
    """Report names that lead nowhere or round in a circle, limits that nobody would keep, and others' accounting."""
    on = accounting.value("enabled") is not False
    _check_keys(slurm, on, report)
    _check_named(accounting.items("accounts"), "account", report)
    _check_named(accounting.items("qos"), "QOS", report)
    accounts, qos = _names(accounting.items("accounts")), _names(accounting.items("qos"))
    parents: dict[str, Sequence[str]] = {}
    for account in accounting.items("accounts"):
        _check_known(account, "parent", accounts, "account", report)
        parents[account.text("name") or ""] = [account.text("parent") or ""]
    _check_circles(accounting.items("accounts"), "parent", parents, "its limits would have no end", report)
    preempts = {}
    for each in accounting.items("qos"):
        _check_known(each, "preempts", qos, "QOS", report)
        preempts[each.text("name") or ""] = _listed(each, "preempts")
    breaks = "their jobs would take each other's place for ever"
    _check_circles(accounting.items("qos"), "preempts", preempts, breaks, report)
    for user in users:
        _check_known(user, "account", {*accounts, DEFAULT_ACCOUNT}, "account", report)
        _check_known(user, "qos", qos, "QOS", report)
        for name in () if on else sorted({"account", "gpu_hours", "max_jobs", "qos"} & user.raw.keys()):
            breaks = "nobody would count what the jobs use"
            fix = "take it out, or set tailrack:accounting.enabled to true"
            report.add(user.at(name), "is there while accounting is off", breaks, fix)


def _names(sections: Iterable[Draft]) -> set[str]:
    return {name for section in sections if (name := section.text("name")) is not None}


def _listed(section: Draft, name: str) -> Sequence[str]:
    value = section.value(name)
    return [each for each in value if isinstance(each, str)] if isinstance(value, tuple) else []


def _check_keys(slurm: Draft, on: bool, report: Report) -> None:
    settings = slurm.raw.get("settings")
    for written in settings if isinstance(settings, Mapping) else ():
        name, path = str(written).lower(), below(slurm.at("settings"), str(written))
        if on and name in _OTHERS:
            breaks = "two of them would keep the books, or nobody"
            fix = "take it out; or write tailrack:accounting: {enabled: false}, and it is yours"
            report.add(path, "is set by tailrack, which keeps the cluster's accounting", breaks, fix)
        elif on and name == _ENFORCE:
            breaks = "users would be shut out before they have an account"
            fix = "take it out: limits are kept wherever the config has one"
            report.add(path, "is set by tailrack, once every user has an account", breaks, fix)


def _check_named(sections: Sequence[Draft], kind: str, report: Report) -> None:
    seen: dict[str, str] = {}
    for section in sections:
        name = section.text("name")
        if name is not None and seen.setdefault(name, section.path) != section.path:
            what = f"{report.value(section.at('name'), name)} is the name of another {kind} too"
            report.add(section.at("name"), what, "it would have the limits of either", "give one of them another name")


def _check_known(section: Draft, name: str, known: set[str], kind: str, report: Report) -> None:
    listed = _listed(section, name)
    text = section.text(name)
    for index, each in enumerate([text] if text is not None else listed):
        if each not in known:
            at = section.at(name) if text is not None else below(section.at(name), index)
            fix = partial(meant, each, known) if known else f"add it to tailrack:accounting, or leave {name} out"
            report.add(at, f"{report.value(at, each)} is no {kind} of the config", "slurmdbd would refuse it", fix)


def _check_circles(
    sections: Sequence[Draft], name: str, above: Mapping[str, Sequence[str]], breaks: str, report: Report
) -> None:
    for section in sections:
        begin = section.text("name")
        if begin is None:
            continue
        ways = [[begin]]
        seen: set[str] = set()
        while ways:
            way = ways.pop()
            for each in above.get(way[-1], ()):
                if each == begin:
                    what = f"leads in a circle ({' -> '.join([*way, begin])})"
                    report.add(section.at(name), what, breaks, "take one of these out")
                    return
                if each not in seen:
                    seen.add(each)
                    ways.append([*way, each])
