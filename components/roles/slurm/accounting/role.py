"""Accounting: slurmdbd and its database on the head node; accounts, limits and fair share of the config's users."""

from collections.abc import Sequence
from graphlib import TopologicalSorter

from components.roles.access.users.settings import User
from components.roles.cluster_settings import ClusterSettings
from components.roles.role import File, Role, Word, folder_of, template, unit
from components.roles.slurm.accounting.database import DATABASE, WITHOUT_EXEC
from components.roles.slurm.accounting.settings import DEFAULT_ACCOUNT, Accounting

# sacctmgr's value for "no limit".
NO_LIMIT = -1


def role(settings: ClusterSettings) -> Role:
    """Return the role, also where accounting is off: its scripts then remove it."""
    accounting = settings.accounting
    units = unit("accounting", f"{DATABASE}.service")
    # One file, and no command of the host program: another text restarts the database, which not every release may do.
    program = (folder_of("accounting") / "without_exec.py").read_text(encoding="utf-8")
    without_exec = File(WITHOUT_EXEC, program, mode="0755")
    return Role(
        "accounting",
        after=("users", "munge", "names"),
        packages={"services": ("python3",)} if accounting.enabled else {},
        files={"services": (units, without_exec)} if accounting.enabled else {},
        values={
            "enabled": accounting.enabled,
            # No file of the role: it names the program, so each release would restart the database.
            "dump": template("accounting", "dump"),
            "conf": conf(accounting),
            "enforce": enforced(accounting, settings.users),
            "purge": purges(accounting),
            "accounts": accounts(accounting),
            "qos": [
                (qos.name, qos.priority, _minutes(qos.gpu_hours), _jobs(qos.max_jobs), ",".join(qos.preempts))
                for qos in accounting.qos
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
    """Return the lines for slurm.conf, except those with the head node's address and those that enforce limits.

    A key that the cluster's slurm.conf already contains keeps its value.
    """
    lines = [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageTRES=gres/gpu",
        "JobAcctGatherType=jobacct_gather/cgroup",
        # Usage counts for the calendar month, like the limits. With decay it would not be a number of hours that an
        # administrator can explain to a user.
        "PriorityType=priority/multifactor",
        "PriorityDecayHalfLife=0",
        "PriorityUsageResetPeriod=MONTHLY",
        "PriorityWeightQOS=100000",
        "PriorityWeightFairshare=10000",
        "PriorityWeightAge=1000",
    ]
    if any(qos.preempts for qos in accounting.qos):
        lines += ["PreemptType=preempt/qos", "PreemptMode=REQUEUE"]
    return lines


def enforced(accounting: Accounting, users: Sequence[User]) -> bool:
    """Return whether the config has a limit, an account or a QOS. Only then does Slurm reject jobs without one."""
    return bool(
        accounting.accounts or accounting.qos or any(user.gpu_hours or user.max_jobs or user.account for user in users)
    )


def accounts(accounting: Accounting) -> Sequence[Sequence[Word]]:
    """Return one row for each account, parents first: name, parent, share, GPU minutes, jobs."""
    by_name = {account.name: account for account in accounting.accounts}
    parents = {name: [account.parent] if account.parent else [] for name, account in by_name.items()}
    ordered = (by_name[name] for name in TopologicalSorter(parents).static_order())
    return [
        (DEFAULT_ACCOUNT, "root", 1, NO_LIMIT, NO_LIMIT),
        *(
            (each.name, each.parent or "root", each.fair_share, _minutes(each.gpu_hours), _jobs(each.max_jobs))
            for each in ordered
        ),
    ]


def purges(accounting: Accounting) -> Sequence[str]:
    """Return the lines of slurmdbd.conf for the records that slurmdbd purges."""
    jobs, steps = accounting.keep_jobs_months, accounting.keep_steps_months
    job_records = ("PurgeJob", "PurgeEvent", "PurgeResv", "PurgeSuspend", "PurgeTXN", "PurgeUsage")
    ages = [*((records, jobs) for records in job_records), ("PurgeStep", steps)]
    return [f"{records}After={months}months" for records, months in ages if months]


def _minutes(gpu_hours: int | None) -> int:
    return NO_LIMIT if gpu_hours is None else gpu_hours * 60


def _jobs(limit: int | None) -> int:
    return NO_LIMIT if limit is None else limit
