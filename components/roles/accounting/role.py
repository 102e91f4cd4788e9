"""Accounting: slurmdbd and its database on the head node; accounts, limits and fair share of the config's users."""

from __future__ import annotations

from collections.abc import Sequence

from components.roles.accounting.settings import DEFAULT_ACCOUNT, Accounting
from components.roles.cluster_settings import ClusterSettings
from components.roles.python_program import python_program
from components.roles.role import File, Role, Word, template
from components.roles.users.settings import User

DATABASE = "tailrack-database"
WITHOUT_EXEC = "/usr/local/lib/tailrack/without-exec"
# What sacctmgr takes for "no limit".
NO_LIMIT = -1


def role(settings: ClusterSettings) -> Role:
    """Present where accounting is off too: what it has made goes then."""
    accounting = settings.accounting
    units = File(f"/etc/systemd/system/{DATABASE}.service", template("accounting", f"{DATABASE}.service"))
    dump = File("/usr/local/lib/tailrack/backup.d/accounting", template("accounting", "dump"), mode="0755")
    program = python_program("components.roles.accounting.without_exec", "sys.argv[1:]")
    without_exec = File(WITHOUT_EXEC, program, mode="0755")
    return Role(
        "accounting",
        after=("users", "munge", "names"),
        section=accounting,
        packages={"services": ("python3",)} if accounting.enabled else {},
        files={"services": (units, dump, without_exec)} if accounting.enabled else {},
        values={
            "conf": conf(accounting),
            "enforce": enforced(accounting, settings.users),
            "purge": [(f"{what}After", months) for what, months in purges(accounting)],
            # As sacctmgr has them; -1 is no limit.
            "accounts": accounts(accounting),
            "qos": [
                (each.name, each.priority, _minutes(each.gpu_hours), _jobs(each.max_jobs), ",".join(each.preempts))
                for each in accounting.qos
            ],
            "users": [
                (
                    user.name,
                    user.account or DEFAULT_ACCOUNT,
                    _minutes(user.gpu_hours),
                    _jobs(user.max_jobs),
                    ",".join(["normal", *user.qos]),
                )
                for user in settings.users
            ],
        },
    )


def conf(accounting: Accounting) -> Sequence[str]:
    """Return lines of slurm.conf, less those that need the head node's address, and less `enforce`.

    A key that the cluster's own slurm.conf has already (a user's, or one for machines without cgroups) stays as it is.
    """
    lines = [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageTRES=gres/gpu",
        "JobAcctGatherType=jobacct_gather/cgroup",
        # Who has used less of his share goes first. What was used counts for the calendar month, like the limits: one
        # that is halved every week is no number of hours that anybody could be told.
        "PriorityType=priority/multifactor",
        "PriorityDecayHalfLife=0",
        "PriorityUsageResetPeriod=MONTHLY",
        "PriorityWeightQOS=100000",
        "PriorityWeightFairshare=10000",
        "PriorityWeightAge=1000",
    ]
    if any(each.preempts for each in accounting.qos):
        lines += ["PreemptType=preempt/qos", "PreemptMode=REQUEUE"]
    return lines


def enforced(accounting: Accounting, users: Sequence[User]) -> bool:
    """Whether anybody has asked for a limit, an account or a QOS: only then is a job refused for want of one."""
    return bool(
        accounting.accounts or accounting.qos or any(user.gpu_hours or user.max_jobs or user.account for user in users)
    )


def accounts(accounting: Accounting) -> Sequence[Sequence[Word]]:
    """Return a row an account, each after its parent: name, parent, share, GPU minutes, jobs."""
    rows: dict[str, Sequence[Word]] = {DEFAULT_ACCOUNT: (DEFAULT_ACCOUNT, "root", 1, NO_LIMIT, NO_LIMIT)}
    left = list(accounting.accounts)
    while left:
        for account in left:
            if account.parent is None or account.parent in rows:
                of = account.parent or "root"
                limits = (_minutes(account.gpu_hours), _jobs(account.max_jobs))
                rows[account.name] = (account.name, of, account.fair_share, *limits)
        left = [account for account in left if account.name not in rows]
    return list(rows.values())


def purges(accounting: Accounting) -> Sequence[tuple[str, int]]:
    """Return what slurmdbd forgets, and after how many months."""
    jobs, steps = accounting.keep_jobs_months, accounting.keep_steps_months
    of_jobs = ("PurgeJob", "PurgeEvent", "PurgeResv", "PurgeSuspend", "PurgeTXN", "PurgeUsage")
    return [(what, months) for what, months in [*((each, jobs) for each in of_jobs), ("PurgeStep", steps)] if months]


def _minutes(gpu_hours: int | None) -> int:
    return NO_LIMIT if gpu_hours is None else gpu_hours * 60


def _jobs(most: int | None) -> int:
    return NO_LIMIT if most is None else most
