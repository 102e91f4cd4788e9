"""Bring slurmdbd's accounts, QOS and users to the config, with their limits.

Entries that an administrator created by hand stay. Entries that this module created go when they leave the config; the
usage of their jobs stays.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from components.node import files
from components.node.log import note
from components.node.step.step import Step
from components.roles.slurm.accounting import slurmdbd
from components.roles.slurm.accounting.database import STATE
from components.roles.slurm.slurm.folders import BASE

# No limit.
_NONE = "-1"
# In one command.
_MOST_USERS = 50


@dataclass(frozen=True)
class Account:
    """An account; a limit of -1 is none."""

    name: str
    parent: str
    share: str
    minutes: str
    jobs: str

    @property
    def limits(self) -> tuple[str, ...]:
        return self.share, self.minutes, self.jobs


@dataclass(frozen=True)
class Qos:
    """A QOS; `preempts` has the names of others, with commas."""

    name: str
    priority: str
    minutes: str
    jobs: str
    preempts: str = ""

    @property
    def limits(self) -> tuple[str, str, str, frozenset[str]]:
        return self.priority, self.minutes, self.jobs, _names(self.preempts)


@dataclass(frozen=True)
class User:
    """A user in an account; `qos` has names with commas."""

    name: str
    account: str
    minutes: str
    jobs: str
    qos: str

    @property
    def key(self) -> str:
        """Return its line in the record."""
        return f"{self.name} {self.account}"

    @property
    def limits(self) -> tuple[str, str, frozenset[str]]:
        return self.minutes, self.jobs, _names(self.qos)


@dataclass(frozen=True)
class EntriesValues:
    """The config's entries; accounts with parents first."""

    accounting_accounts: list[Account]
    accounting_qos: list[Qos]
    accounting_users: list[User]


class _Present:
    """The entries that slurmdbd has for the cluster, with their limits as the config's entries have them.

    parents   the account above each account
    defaults  `name account` of users with their default account
    """

    def __init__(self, cluster: str) -> None:
        columns = "format=User,Account,ParentName,Fairshare,GrpTRESMins,GrpJobs,MaxJobs,QOS"
        rows = slurmdbd.show("assoc", "where", f"cluster={cluster}", columns)
        accounts = [row for row in rows if not row[0]]
        self.parents = {row[1]: row[2] for row in accounts}
        self.accounts = {row[1]: (row[3], _minutes(row[4]), row[5] or _NONE) for row in accounts}
        self.users = {
            f"{user} {account}": (_minutes(minutes), jobs or _NONE, _names(qos))
            for user, account, _, _, minutes, _, jobs, qos in rows
            if user
        }
        rows = slurmdbd.show("qos", "format=Name,Priority,GrpTRESMins,MaxJobsPerUser,Preempt")
        self.qos = {
            name: (priority, _minutes(minutes), jobs or _NONE, _names(preempts))
            for name, priority, minutes, jobs, preempts in rows
        }
        self.defaults = {f"{user} {account}" for user, account in slurmdbd.show("user", "format=User,DefaultAccount")}


def _minutes(limits: str) -> str:
    found = re.search(r"gres/gpu=(\d+)", limits)
    return found[1] if found else _NONE


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split(","))


def apply_associations(step: Step, values: EntriesValues) -> None:
    """Change slurmdbd's entries."""
    names = (line.partition("=")[2] for line in files.lines(f"{BASE}/slurm.conf") if line.startswith("ClusterName="))
    cluster = next(names, "")
    present = _Present(cluster)
    _record("qos", [qos.name for qos in values.accounting_qos], present.qos)
    _record("accounts", [account.name for account in values.accounting_accounts], present.parents)
    _record("users", [user.key for user in values.accounting_users], present.users)
    # Each has its own session, because sacctmgr reads the list of QOS once.
    for changes in (_new_qos, _changes):
        if not slurmdbd.change_all([*changes(values, cluster, present, _MOST_USERS)]):
            for command in changes(values, cluster, _Present(cluster), 1):
                slurmdbd.change(step, command)
    _remove_unwanted(values, cluster)


def _new_qos(values: EntriesValues, cluster: str, present: _Present, most: int) -> Iterator[str]:
    return (f"add qos {qos.name}" for qos in values.accounting_qos if qos.name not in present.qos)


def _changes(values: EntriesValues, cluster: str, present: _Present, most: int) -> Iterator[str]:
    """Yield the commands; one is about a number of users at most."""
    for qos in values.accounting_qos:
        yield from _qos_changes(qos, present)
    for account in values.accounting_accounts:
        yield from _account_changes(account, cluster, present)
    users = values.accounting_users
    new = [user for user in users if user.key not in present.users]
    for user, names in _groups(new, lambda user: user.account, most):
        yield f"add user name={names} account={user.account} cluster={cluster}"
    others = [user for user in users if present.users.get(user.key) != user.limits]
    for user, names in _groups(others, lambda user: (user.account, user.limits), most):
        yield (
            f"modify user where name={names} account={user.account} cluster={cluster} set "
            f"GrpTRESMins=gres/gpu={user.minutes} MaxJobs={user.jobs} qoslevel={user.qos}"
        )
    others = [user for user in users if user.key not in present.defaults]
    for user, names in _groups(others, lambda user: user.account, most):
        yield f"modify user where name={names} cluster={cluster} set DefaultAccount={user.account}"


def _groups(users: Iterable[User], key: Callable[[User], Hashable], most: int) -> Iterator[tuple[User, str]]:
    """Yield a user of each group of users with the same key, and the names of the group."""
    groups = defaultdict[Hashable, list[User]](list)
    for user in users:
        groups[key(user)].append(user)
    for group in groups.values():
        for begin in range(0, len(group), most):
            yield group[begin], ",".join(user.name for user in group[begin : begin + most])


def _qos_changes(qos: Qos, present: _Present) -> Iterator[str]:
    there = present.qos.get(qos.name)
    if there == qos.limits:
        return
    # Slurm 22.05 rejects every later list with a QOS that was given an empty one ("QOS Preemption loop detected").
    same_list = (there[-1] if there else _names("")) == _names(qos.preempts)
    yield (
        f"modify qos where name={qos.name} set priority={qos.priority} GrpTRESMins=gres/gpu={qos.minutes} "
        f"MaxJobsPerUser={qos.jobs}{'' if same_list else f' preempt={qos.preempts}'}"
    )


def _account_changes(account: Account, cluster: str, present: _Present) -> Iterator[str]:
    name = account.name
    where = f"modify account where name={name} cluster={cluster} set"
    if name not in present.parents:
        yield f"add account {name} cluster={cluster} parent={account.parent} description={name} organization=tailrack"
    elif present.parents[name] != account.parent:
        yield f"{where} parent={account.parent}"
    if present.accounts.get(name) != account.limits:
        yield f"{where} fairshare={account.share} GrpTRESMins=gres/gpu={account.minutes} GrpJobs={account.jobs}"


# Records of the entries that this module created: names, or `name account` for users.


def _record(kind: str, entries: Sequence[str], present: Container[str]) -> None:
    """Record the entries that slurmdbd lacks, before they are created."""
    there = files.lines(f"{STATE}/{kind}")
    if new := [entry for entry in entries if entry not in present and entry not in there]:
        files.write(f"{STATE}/{kind}", "\n".join([*there, *new]))


def _unwanted(kind: str, wanted: Container[str]) -> list[str]:
    return [line for line in files.lines(f"{STATE}/{kind}") if line not in wanted]


def _forget(kind: str, entry: str) -> None:
    files.remove_lines(f"{STATE}/{kind}", lambda line: line == entry)


def _remove_unwanted(values: EntriesValues, cluster: str) -> None:
    """Delete entries that this module created and that are no longer in the config.

    The role `users` has cancelled their jobs; jobs that are still ending keep a user until the next run.
    """
    for entry in _unwanted("users", {user.key for user in values.accounting_users}):
        name, account = entry.split()
        deleted = slurmdbd.delete("user", f"name={name}", f"account={account}", f"cluster={cluster}")
        if deleted or entry not in _Present(cluster).users:
            _forget("users", entry)
            note(f"removed {name} from account {account}")
        else:
            note(f"{name} stays in account {account} until the next run: see slurmdbd's message above")
    for name in _unwanted("accounts", {account.name for account in values.accounting_accounts}):
        if any(user for (user,) in slurmdbd.show("assoc", "where", f"account={name}", "format=User")):
            note(f"account {name} stays: it has users who were added by hand or have jobs")
        else:
            _delete("accounts", "account", name)
    for name in _unwanted("qos", {qos.name for qos in values.accounting_qos}):
        _delete("qos", "qos", name)


def _delete(kind: str, what: str, name: str) -> None:
    if slurmdbd.delete(what, f"name={name}"):
        _forget(kind, name)
    else:
        note(f"{what} {name} stays until the next run: see slurmdbd's message above")
