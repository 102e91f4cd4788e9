"""Print the failures of an operation."""

from __future__ import annotations

import re
from dataclasses import replace

from rich.console import Console

from cli.output.make_command import Make
from cli.output.progress import Progress, describe
from cli.output.terminal import lines
from cli.pulumi.workspace import ROOT
from cli.run_events import Failure, Summary
from components.steps.label import StepLabel
from stacks.unexpected_errors import TRACEBACK, report_text


def print_failures(console: Console, summary: Summary, progress: Progress, interrupted: bool = False) -> int:
    """Print the failures and the next action; return the exit status.

    interrupted   whether Ctrl-C ended the run; if no step failed, there is nothing to fix
    """
    failures = [failure for failure in summary.failures if failure.urn or not interrupted]
    for failure in failures:
        console.print()
        console.print(lines(describe_failure(failure)), style="red", soft_wrap=True)
    console.print()
    if not failures:
        console.print("Stopped. Run the same command again to continue.")
        return 1
    done = "The next run continues with the unfinished steps." if progress.begun else "No step was started."
    console.print(f"{done} Fix the problem above and run the same command again.")
    return 1


def first_line(failure: Failure) -> str:
    """Return the name of the failed step, for a list; the program itself if no step failed."""
    return describe(failure.command, failure.name) if failure.urn else "the program"


def describe_failure(failure: Failure) -> str:
    """Return the text of one failure for people."""
    if not failure.urn:  # the program itself failed
        return report_text(failure.message, ROOT) if TRACEBACK in failure.message else failure.message
    return f"failed: {first_line(failure)}\n{_without_command(failure.message) or 'no reason was given'}"


def _without_command(message: str) -> str:
    """Return a failure without the command: both engines print hundreds of its characters before its output."""
    first, _, rest = message.partition("\n")
    status, running, _ = first.partition(': running "')
    return (rest.strip("\n") or status) if running else message


_NO_STACK = Make()
_CHANGED_KEY = (
    "the host key at the address of {machine} differs from the config, and nothing was run there. Read "
    "/etc/ssh/ssh_host_ed25519_key.pub on {machine} itself. If it differs from host_key, correct the config (for a "
    "key in known_hosts_file: delete its line and run '{trust}'). If it equals host_key, another machine answers "
    "at this address: find out which one. Then run up again"
)
# Patterns of errors of sudo and of SSH (in the CLI's provider and in the in-process engine), each with its remedy.
_REMEDIES = (
    (
        r"sudo: ((?!sudo: ).)*(is|are) required|sudo.: (No such file|not found)|not in the sudoers file|"
        r"may not run sudo",
        "give the login account on {machine} password-less sudo (a line `NAME ALL=(ALL) NOPASSWD: ALL` in "
        "/etc/sudoers.d), or set sudo_password of its site, or log in as root; then run up again",
    ),
    (
        # At the start of a line: failures of the CLI quote the command, which contains this text too.
        r"(?m)^[~/]\S*/([0-9a-f]{64}|start-[0-9a-f]{8}\.sh): not there",
        "setup scripts in the home folder of the login account on {machine} are missing or damaged. To copy them "
        "again, change the machine's value in tailrack:cluster.repair (in a pool: tailrack:repair); then run up again",
    ),
    (
        # SFTP reads the first bytes of such output as a length.
        r"max(imum)? packet (size|length) exceeded|packet too (long|large)|message too long",
        "a start-up file of the login account on {machine} prints text, which breaks SFTP: usually .bashrc, .profile "
        "or /etc/bash.bashrc. `ssh {machine} true` must print nothing: let that file end at once without a person (a "
        "first line `[[ $- == *i* ]] || return`); then run up again",
    ),
    (
        r"subsystem request failed|SFTP (connection|protocol|subsystem)|session request failed",
        "enable SFTP in the sshd of {machine}, because tailrack copies its scripts with SFTP: add the line "
        "`Subsystem sftp internal-sftp` to /etc/ssh/sshd_config there and run `systemctl reload ssh`. If {machine} is "
        "a pod behind its provider's SSH proxy, it has no systemd and no TUN device and cannot be a node: rent a "
        "virtual machine or bare metal instead (docs/providers.md). Then run up again",
    ),
    (
        # For a full disk or a quota: OpenSSH's answer to the CLI, and the in-process engine's own.
        r"(?m)^Failure$|sftp: \"Failure\"|SSH_FX_FAILURE|cannot copy files to .*(No space left|quota exceeded)",
        "the login account on {machine} cannot write in its home folder, usually because its disk or quota is full: "
        "make room there (see `df -h ~` and `quota`), then run up again",
    ),
    (
        r"host key (mismatch|is not trusted)|no (common algorithm for|matching) host key",
        _CHANGED_KEY,
    ),
    (
        r"SSH_AUTH_SOCK|attempted methods \[none\]",
        "the config has `agent: true` for the connection to {machine}, but no SSH agent with a key was found: make "
        "sure that `ssh-add -l` shows the key in this shell; then run up again",
    ),
    (
        r"unable to authenticate|permission denied for user",
        "check user and private_key_file of {machine} in the config, and ~/.ssh/authorized_keys on {machine}; then run "
        "up again",
    ),
    (
        r"accepts connections but does not answer",
        "restart {machine} or its sshd (a machine without free memory behaves like this), or remove {machine} from the "
        "config; then run up again",
    ),
    (
        r"failed attempts",
        "check that {machine} is on and that you can reach it by SSH from this machine, then run up again. If "
        "{machine} no longer exists, remove it from the config",
    ),
    (
        r"connection (was )?lost|without exit status|not responding|connection (reset|timed out)|broken pipe",
        "the connection to {machine} broke during the step, which may still run there. Check that {machine} is on and "
        "that you can reach it by SSH from this machine, then run up again: the step waits up to 10 minutes for the "
        "interrupted one (see /var/log/tailrack on {machine}) and starts again",
    ),
)
# The step of the first connection to a rented machine (stacks/sites/rented/first_key.py), whose key no one wrote.
_FIRST_CONNECTION = "-host-key"
_STRANGE_KEY = (
    "{machine} does not have the host key that the stack sent to it at its first boot, so nothing was run there. End "
    "this machine in the cloud's console; then run up again, which rents another"
)


def with_remedies(summary: Summary, make: Make = _NO_STACK) -> Summary:
    """Add a line `next: ...` to the failures of steps on machines that could not be reached.

    make   the commands of the stack
    """
    summary.failures = [_explained(failure, make) for failure in summary.failures]
    return summary


def _explained(failure: Failure, make: Make) -> Failure:
    label = StepLabel.of(failure.command)
    if not label or not label.machine or "next: " in failure.message:
        return failure
    for pattern, remedy in _REMEDIES:
        if re.search(pattern, failure.message, re.IGNORECASE):
            if remedy is _CHANGED_KEY and label.name == f"{label.machine}{_FIRST_CONNECTION}":
                remedy = _STRANGE_KEY
            text = remedy.format(machine=label.machine, trust=make("trust"))
            return replace(failure, message=f"{failure.message}\nnext: {text}")
    return failure
