"""Users log in to a node by SSH only while they have a job there, and the login joins the job.

Root and the account that tailrack logs in with are exempt: they must get in even if Slurm fails.
"""

import os
import re
import secrets

from components.node import files, packages
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt, run
from components.node.step.step import Step
from components.roles.access.ssh_trust import sshd
from components.roles.access.users.accounts import Account

_PROGRAM = "/usr/sbin/sshd"
SSHD = "/etc/pam.d/sshd"
# The new stack, for a test before it replaces the real one.
TRIED = "/etc/pam.d/tailrack-tried"
# common-session for logins that join a job.
OF_JOBS = "/etc/pam.d/tailrack-jobs"
# Users who need a job, one per line.
JOB_USERS = "/etc/tailrack/job-users"
_BEGIN, _END, _WAS = "# tailrack: begin", "# tailrack: end", "# was: "
_NEEDS_JOB = f"pam_listfile.so item=user sense=allow onerr=fail quiet file={JOB_USERS}"
_NEEDS_NONE = f"pam_listfile.so item=user sense=deny onerr=succeed quiet file={JOB_USERS}"
_ACCOUNT = re.compile(r"-?account[ \t]|@include[ \t]+common-account[ \t]*$")
_SESSION = re.compile(r"@include[ \t]+common-session[ \t]*$")


def managing_login() -> str:
    """Return the account that this step logged in with."""
    return os.environ.get("SUDO_USER") or "root"


def manager_enters(service: str) -> bool:
    """Return whether that account can log in through a PAM stack.

    This is a complete login by sshd. sshd speaks over pipes, so no port and no other setting matters, and uses a key
    that exists only during this function.
    """
    # sshd reads the key as the account, so not in a folder that only root can enter.
    folder = f"/run/tailrack-login.{secrets.token_hex(8)}"
    files.make_folder(folder, 0o711)
    try:
        return _log_in(folder, service)
    finally:
        files.remove_folder(folder)


def _log_in(folder: str, service: str) -> bool:
    key = files.on_disk(f"{folder}/key")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)
    config = [
        "HostKey /etc/ssh/ssh_host_ed25519_key",
        "UsePAM yes",
        "PermitRootLogin yes",
        f"AuthorizedKeysFile {key}.pub",
    ]
    program = _PROGRAM
    if "\npamservicename " in f"\n{sshd.query('-T')}":
        config.append(f"PAMServiceName {service}")
    else:
        # Before OpenSSH 9.8 the stack is named after the program.
        files.link(f"{folder}/{service}", _PROGRAM)
        program = files.on_disk(f"{folder}/{service}")
    files.write(f"{folder}/config", "\n".join(config))
    options = (
        "IdentitiesOnly=yes",
        "BatchMode=yes",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        f"ProxyCommand={program} -i -f {files.on_disk(folder)}/config",
    )
    words = ("ssh", "-n", "-F", "/dev/null", "-i", key, *(word for option in options for word in ("-o", option)))
    return attempt(*words, f"{managing_login()}@here", "true", limit=30).ok


def without_jobs() -> list[str]:
    """Return the lines of the stack without the cluster's."""
    lines: list[str] = []
    ours = False
    for line in files.lines(SSHD):
        if line == _BEGIN:
            ours = True
        elif not ours:
            lines.append(line)
        elif line == _END:
            ours = False
        elif line.startswith(_WAS):
            lines.append(line.removeprefix(_WAS))
    return lines


def with_jobs(host: str) -> list[str]:
    """Return the lines of a stack that requires a job. Raises Failure if the stack is not as Debian's."""
    lines = without_jobs()
    accounts = [number for number, line in enumerate(lines) if _ACCOUNT.match(line)]
    sessions = [number for number, line in enumerate(lines) if _SESSION.match(line)]
    if not accounts or not sessions:
        raise Failure(
            f"{SSHD} includes no common-account and common-session",
            "restore Debian's lines, or set tailrack:slurm.ssh_needs_job to false",
        )
    stack: list[str] = []
    for number, line in enumerate(lines):
        stack += _session_lines() if number == sessions[-1] else [line]
        if number == accounts[-1]:
            stack += _account_lines(host)
    return stack


def _account_lines(host: str) -> list[str]:
    return [
        _BEGIN,
        f"account [success=ignore default=1] {_NEEDS_JOB}",
        f"account required pam_slurm_adopt.so nodename={host} action_adopt_failure=deny action_generic_failure=deny",
        _END,
    ]


def _session_lines() -> list[str]:
    """Return the lines that replace the one with common-session.

    pam_systemd would take the login out of its job's cgroup, so users who need a job get a copy without it.
    """
    return [
        _BEGIN,
        f"{_WAS}@include common-session",
        f"session [success=1 default=ignore] {_NEEDS_JOB}",
        "session substack common-session",
        f"session [success=1 default=ignore] {_NEEDS_NONE}",
        f"session substack {OF_JOBS.rpartition('/')[2]}",
        _END,
    ]


def restore_stack() -> None:
    """Remove the cluster's lines and files.

    The complete file is renamed, so that a stack always exists. The old stack needs its files until then.
    """
    if _BEGIN in files.lines(SSHD):
        files.write(SSHD, "\n".join(without_jobs()))
    for path in (OF_JOBS, JOB_USERS, TRIED):
        files.remove(path)


def node(
    step: Step,
    pam_slurm_adopt_wanted: bool,
    node_confined: bool,
    node_login: str,
    slurm_release: str,
    users_lines: list[Account],
) -> None:
    """Require a job if the config wants it and logins can join one.

    node_login      not empty if users log in here without a job
    node_confined   whether cgroups confine jobs on this machine
    slurm_release   the config's release, which includes the module; empty for the distribution's
    """
    if pam_slurm_adopt_wanted and node_confined and not node_login:
        if not slurm_release:
            packages.ensure(step.host, "libpam-slurm-adopt")
        _require_job(step.host, users_lines)
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


def leave(step: Step) -> None:
    """Remove the cluster's lines from sshd's PAM stack."""
    restore_stack()
