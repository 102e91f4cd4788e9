"""Limit each user on the head node and on log-in nodes, and protect daemons there from users.

The limits do not include root and the account that tailrack logs in with, whose steps install and build packages. Jobs
run below slurmd, outside of users' slices. The daemons keep their memory (MemoryMin, which a unit has only up to the
amount of the slice above it), and the kernel ends other processes first.
"""

import os

from components.node import files, kernel, packages, systemd
from components.node.failure import Failure
from components.node.files import File
from components.node.log import note
from components.node.passwd import user_named
from components.node.run import attempt, exists, run
from components.node.step.step import Step
from components.node.systemd import UNITS
from components.roles.access.pam_slurm_adopt.host import managing_login
from components.roles.access.ssh_trust import sshd

_NAME = "tailrack.conf"
# These daemons start users' programs outside of slices of users. All these programs together have the limits of a user.
SCHEDULERS = ("cron.service", "atd.service")
_PACKAGE = "libpam-systemd"
_LOGIND = "systemd-logind.service"
_SESSION = "/etc/pam.d/common-session"
_CGROUPS = "/sys/fs/cgroup"
_CONTROLLERS = {"memory", "cpu", "pids"}
# The kernel would first end any process with a greater value; users' processes have 0 to 200.
OOM_SCORE = -900
# Percent of the machine's memory.
_LEAST = 3
# sshd sets its own value, which is -1000. A value of its unit would be that of every log-in, so of users' processes.
# slurmd's would be that of jobs.
SSHD = "ssh.service"
PROTECTED = (
    *("slurmctld.service", "slurmdbd.service", "tailrack-database.service", "munge.service", "tailscaled.service"),
    *("nfs-ganesha.service", "nfs-mountd.service", SSHD),
)
# Slices with protected units, and their least memory: daemons; log-ins of root.
PARENTS = (("system.slice", 25), ("user.slice", _LEAST))
SLICE = """# Written by tailrack: protect daemons from users' processes.
[Slice]
MemoryMin={percent}%"""
# Nothing of the general user-.slice.d/tailrack.conf: systemd reads the most specific file of a name.
UNLIMITED_SLICE = f"""# Written by tailrack: no limits for this account.
[Slice]
CPUWeight=1000
MemoryMin={_LEAST}%"""


def limits_text(memory_percent: int, cpu_percent: int, tasks: int, cpus: int) -> str:
    """Return the limits, as lines of a unit's section.

    The kernel ends a process as soon as the memory is used up. MemoryHigh would first slow down all processes of the
    user, also a new log-in, and swap would slow down the machine.
    """
    # systemd counts 100% for each CPU. CPUWeight has the kernel divide the CPUs by slices and not by processes.
    quota = f"\nCPUQuota={cpu_percent * cpus}%" if cpu_percent < 100 else ""
    return f"MemoryMax={memory_percent}%\nMemorySwapMax=0\nTasksMax={tasks}\nCPUWeight=100{quota}"


def limits(text: str) -> list[File]:
    """Return the files with the limits of every account, and of the daemons that start users' programs.

    By default systemd stops the whole unit if the kernel ends one of its processes.
    """
    header = "# Written by tailrack: limits of each user (tailrack:head.user_limits)."
    scheduler = f"{header}\n[Service]\n{text}\nOOMPolicy=continue"
    users = File(f"{UNITS}/user-.slice.d/{_NAME}", f"{header}\n[Slice]\n{text}")
    return [users, *(File(f"{UNITS}/{unit}.d/{_NAME}", scheduler) for unit in SCHEDULERS)]


def why_not_limited(host: str) -> str:
    """Return why slices of users limit nothing here: `controllers`, `logins`, or `none` if they do."""
    if lacking := sorted(_CONTROLLERS - _controllers()):
        note(f"users are not limited: systemd does not control {', '.join(lacking)} on this machine")
        return "controllers"
    if _lacks_module():
        packages.try_ensure(host, _PACKAGE)
        attempt("systemctl", "start", _LOGIND)
    if reason := _why_outside():
        note(f"users are not limited: {reason}")
        return "logins"
    return "none"


def _why_outside(session: bool = True) -> str:
    """Return why log-ins do not run in slices of users; empty if they do. `session`: check the module for it too."""
    if exists("sshd") and "usepam yes" not in sshd.query("-T").splitlines():
        return "sshd does not use PAM (UsePAM in /etc/ssh/sshd_config)"
    if session and not any("pam_systemd.so" in line.partition("#")[0] for line in files.lines(_SESSION)):
        return f"{_SESSION} has no pam_systemd.so"
    return ""


def _controllers() -> set[str]:
    """Return the controllers that systemd can use for slices, in either version of cgroups."""
    parent = attempt("systemctl", "show", "-P", "ControlGroup", "system.slice").output.strip().rpartition("/")[0]
    unified = kernel.read(f"{_CGROUPS}{parent}/cgroup.controllers").split()
    # In version 1, each has its own hierarchy.
    return {*unified, *kernel.names_in(_CGROUPS)} & _CONTROLLERS


def _lacks_module() -> bool:
    """Return whether to install the module that puts log-ins into slices. Its owner may have turned its service off.

    Cloud images have it; the smallest images of Debian lack it.
    """
    return bool(packages.missing_of([_PACKAGE])) and not _is_masked()


def _is_masked() -> bool:
    return attempt("systemctl", "is-enabled", _LOGIND).output.strip() == "masked"


def check_node(step: Step, node_login: str, user_limits_enabled: bool) -> None:
    """Refuse a log-in node where users would have no limits. `node_login`: not empty for a log-in node.

    Machines without the controllers, and those whose owner has masked logind, are as on the head node: not limited.
    """
    if not node_login or not user_limits_enabled or _CONTROLLERS - _controllers():
        return
    if reason := _why_outside(session=not _is_masked() and not _lacks_module()):
        raise Failure(
            f"users of the log-in node {step.host} would have no limits, because {reason}",
            f"on {step.host}, write UsePAM yes in /etc/ssh/sshd_config, and run 'apt-get install {_PACKAGE}' and "
            f"'pam-auth-update --enable systemd'; or write user_limits: {{enabled: false}} in tailrack:head; then run "
            "up again",
        )


def daemon_text(unit: str) -> str:
    """Return the drop-in of a daemon's unit."""
    score = "" if unit == SSHD else f"\nOOMScoreAdjust={OOM_SCORE}"
    return f"# Written by tailrack: protect it from users' processes.\n[Service]\nMemoryMin={_LEAST}%{score}"


def protect_running() -> None:
    """Give running daemons the value that systemd sets only when it starts one. A restart would interrupt users."""
    units = (unit for unit in PROTECTED if unit != SSHD)
    for process in run("systemctl", "show", "-P", "MainPID", *units).split():
        if process != "0":
            kernel.write(f"/proc/{process}/oom_score_adj", str(OOM_SCORE))


def head(
    step: Step,
    user_limits_enabled: bool,
    user_limits_memory_percent: int,
    user_limits_cpu_percent: int,
    user_limits_tasks: int,
) -> None:
    """Write the drop-ins of slices and units, and have systemd apply them to those that are there."""
    manager = user_named(managing_login())
    unlimited = sorted({0, manager.pw_uid} if manager else {0})
    drop_ins = [File(f"{UNITS}/user-{uid}.slice.d/{_NAME}", UNLIMITED_SLICE) for uid in unlimited]
    if user_limits_enabled:
        percents = (user_limits_memory_percent, user_limits_cpu_percent)
        drop_ins += limits(limits_text(*percents, user_limits_tasks, os.cpu_count() or 1))
    # Those that were there before the record of them.
    removed = [files.remove(file.path) for file in limits("") if not user_limits_enabled]
    if step.declare(*drop_ins) or any(removed):
        # systemd's answers about a slice do not include all drop-ins that it would read.
        systemd.reload_later(step)
    # An earlier step may have been cut off before it reloaded.
    systemd.reload_later(step, *PROTECTED, *(unit for unit, _ in PARENTS), *SCHEDULERS, *_loaded_slices())
    protect_running()
    step.result("user_limits", why_not_limited(step.host) if user_limits_enabled else "none")


login = head


def _loaded_slices() -> list[str]:
    """Return the slices of accounts that are logged in."""
    rows = run("systemctl", "list-units", "--plain", "--no-legend", "user-*.slice").splitlines()
    return [row.split()[0] for row in rows if row.strip()]
