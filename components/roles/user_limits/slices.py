"""Files that limit the slice of each user. systemd puts all log-ins of an account into one slice, user-<uid>.slice."""

from __future__ import annotations

import re

from components.node import files
from components.node.files import File
from components.node.systemd import UNITS
from components.roles.user_limits.protection import UNLIMITED_SLICE

_NAME = "tailrack.conf"
# Every account's slice.
ALL_USERS = f"{UNITS}/user-.slice.d/{_NAME}"
# These daemons start users' programs outside of slices of users. All these programs together have the limits of a user.
SCHEDULERS = ("cron.service", "atd.service")
_OF_ACCOUNT = re.compile(r"user-[0-9]+\.slice\.d")


def account_file(uid: int) -> str:
    """Return the path of the file for the slice of one account."""
    return f"{UNITS}/user-{uid}.slice.d/{_NAME}"


def limits_text(memory_percent: int, cpu_percent: int, tasks: int, cpus: int) -> str:
    """Return the limits, as lines of a unit's section.

    The kernel ends a process as soon as the memory is used up. MemoryHigh would first slow down all processes of the
    user, also a new log-in, and swap would slow down the machine.
    """
    # systemd counts 100% for each CPU. CPUWeight has the kernel divide the CPUs by slices and not by processes.
    quota = f"\nCPUQuota={cpu_percent * cpus}%" if cpu_percent < 100 else ""
    return f"MemoryMax={memory_percent}%\nMemorySwapMax=0\nTasksMax={tasks}\nCPUWeight=100{quota}"


def set_limits(limits: str, unlimited: set[int]) -> bool:
    """Write limits for every account but some; return whether a file changed."""
    header = "# Written by tailrack: limits of each user (tailrack:head.user_limits)."
    written = files.write_all(
        [
            *(File(account_file(uid), UNLIMITED_SLICE) for uid in sorted(unlimited)),
            File(ALL_USERS, f"{header}\n[Slice]\n{limits}"),
            *(File(f"{UNITS}/{unit}.d/{_NAME}", _scheduler_text(limits)) for unit in SCHEDULERS),
        ]
    )
    return _remove_others(unlimited) or written


def remove_limits(unlimited: set[int]) -> bool:
    """Remove the limits of all accounts; return whether a file changed. The given ones keep their memory."""
    removed = [files.remove(path) for path in (ALL_USERS, *(f"{UNITS}/{unit}.d/{_NAME}" for unit in SCHEDULERS))]
    written = files.write_all([File(account_file(uid), UNLIMITED_SLICE) for uid in sorted(unlimited)])
    return any((_remove_others(unlimited), written, *removed))


def _remove_others(unlimited: set[int]) -> bool:
    """Remove the files of accounts that were unlimited before; return whether there was one."""
    kept = {account_file(uid) for uid in unlimited}
    paths = [f"{UNITS}/{name}/{_NAME}" for name in files.names_in(UNITS) if _OF_ACCOUNT.fullmatch(name)]
    removed = [path for path in paths if path not in kept and files.remove(path)]
    for path in removed:
        files.remove_if_empty(path.rpartition("/")[0])
    return bool(removed)


def _scheduler_text(limits: str) -> str:
    # By default systemd stops the whole unit if the kernel ends one of its processes.
    return (
        "# Written by tailrack: limits of users' programs that it starts (tailrack:head.user_limits).\n"
        f"[Service]\n{limits}\nOOMPolicy=continue"
    )
