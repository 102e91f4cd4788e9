"""Let a user of the cluster log in by SSH only with a job on this node, and put the login into the job's cgroup.

Root and the account that tailrack logs in with are exempt: they must get in even if Slurm fails.
"""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files, packages
from components.node.failure import Failure
from components.node.log import note
from components.node.step.step import Step
from components.roles.pam_slurm_adopt.login import manager_enters, managing_login
from components.roles.pam_slurm_adopt.stack import JOB_USERS, OF_JOBS, SSHD, TRIED, restore_stack, with_jobs
from components.roles.ssh_trust import sshd
from components.roles.users.accounts import Account


@dataclass(frozen=True)
class PamValues:
    """The values.

    pam_slurm_adopt_wanted   False if the config turned it off
    node_confined            whether cgroups confine jobs on this machine
    slurm_release            the config's release, which includes the module; empty for the distribution's
    """

    pam_slurm_adopt_wanted: bool
    node_confined: bool
    slurm_release: str
    users_lines: list[Account]


def node(step: Step, values: PamValues) -> None:
    """Require a job if the config wants it and logins can join one."""
    if values.pam_slurm_adopt_wanted and values.node_confined:
        if not values.slurm_release:
            packages.ensure(step.host, "libpam-slurm-adopt")
        _require_job(step.host, values.users_lines)
    else:
        note("users can log in here by SSH without a job")
        restore_stack()


def _require_job(host: str, users: list[Account]) -> None:
    """Require a job.

    Test the stack under another name before it becomes sshd's, so that a killed step leaves a working stack.
    """
    manager = managing_login()
    remedy = f"see 'journalctl -t sshd-session -t sshd' on {host}, or set tailrack:slurm.ssh_needs_job to false"
    if "usepam yes" not in sshd.query("-T").splitlines():
        raise Failure(
            "sshd does not use PAM on this machine, so it cannot check for jobs",
            f"set UsePAM yes in /etc/ssh/sshd_config on {host}, or tailrack:slurm.ssh_needs_job to false",
        )
    files.write(JOB_USERS, "\n".join(user.name for user in users if user.name != manager))
    session = [line for line in files.lines("/etc/pam.d/common-session") if "pam_systemd.so" not in line]
    files.write(OF_JOBS, "\n".join(["# Written by tailrack: common-session without pam_systemd.", *session]))
    old, new = files.lines(SSHD), with_jobs(host)
    if old == new:
        return
    if not manager_enters("sshd"):
        raise Failure(f"{manager} cannot log in through the present sshd and PAM configuration", remedy)
    files.write(TRIED, "\n".join(new))
    if not manager_enters(TRIED.rpartition("/")[2]):
        raise Failure(f"{manager} could not log in with the new PAM stack; nothing was changed", remedy)
    files.rename(TRIED, SSHD)
    if not manager_enters("sshd"):
        files.write(SSHD, "\n".join(old))
        raise Failure(f"{manager} could not log in with the new PAM stack; {SSHD} was restored", remedy)
    note("users need a job here to log in by SSH")
