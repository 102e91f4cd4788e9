"""What to do about a machine that could not be reached, or no longer. A script's own failures say it themselves."""

from __future__ import annotations

import re
from dataclasses import replace

from cli.output.make_command import Make
from components.steps.label import StepLabel
from engine.events import Failure, Summary

_NO_STACK = Make()
# What sudo and SSH say, the latter in the words of the CLI's provider and of the in-process engine; and the remedy.
_REMEDIES = (
    (
        r"sudo: ((?!sudo: ).)*(is|are) required|sudo.: (No such file|not found)|not in the sudoers file|"
        r"may not run sudo",
        "give the account that steps run with on {machine} password-less sudo (a line `NAME ALL=(ALL) NOPASSWD: ALL` "
        "in /etc/sudoers.d), or use root; then run up again",
    ),
    (
        r"/[0-9a-f]{64}: not there, or not whole",
        "somebody took away what tailrack had put into the login's home on {machine}. Write another text for it in "
        "tailrack:cluster.repair (of a pool: tailrack:repair), which puts it there again; then run up again",
    ),
    (
        # The first bytes of a text are read as a length.
        r"max(imum)? packet (size|length) exceeded|packet too (long|large)|message too long",
        "something that the login on {machine} starts prints text where files should come: most often .bashrc, "
        ".profile or /etc/bash.bashrc. `ssh {machine} true` has to print nothing: let that file end at once "
        "where no person is logged in (a first line `[[ $- == *i* ]] || return`); then run up again",
    ),
    (
        r"subsystem request failed|SFTP (connection|protocol|subsystem)|session request failed",
        "give the sshd of {machine} its SFTP, by which scripts come: a line `Subsystem sftp internal-sftp` in "
        "/etc/ssh/sshd_config there, and `systemctl reload ssh`; where {machine} is a pod, reached by its provider's "
        "SSH proxy, it has no systemd and no TUN device either and cannot be a node: rent a virtual machine or bare "
        "metal in its place (docs/providers.md); then run up again",
    ),
    (
        r"host key mismatch|host key is not trusted",
        "{machine} shows another host key than the one in the config, and nothing was run on it. Compare host_key with "
        "/etc/ssh/ssh_host_ed25519_key.pub on {machine} itself: correct the config if that is the one (of a key in "
        "known_hosts_file: delete its line and run '{trust}'), and find out who answers at the address if it is "
        "not; then run up again",
    ),
    (
        r"SSH_AUTH_SOCK|attempted methods \[none\]",
        "the config says `agent: true` for the way to {machine}, and no agent with a key was there: see that "
        "`ssh-add -l` shows the key in the shell that you run this in; then run up again",
    ),
    (
        r"unable to authenticate|permission denied for user",
        "see user and private_key_file of {machine} in the config, and ~/.ssh/authorized_keys there; then run up again",
    ),
    (
        r"accepts connections and says nothing",
        "restart it, or the sshd on it (a machine that is out of memory is like that), or take {machine} out of the "
        "config; then run up again",
    ),
    (
        r"failed attempts",
        "see that {machine} is switched on and that ssh reaches it from here, then run up again; "
        "a machine that is gone for good is removed from the config",
    ),
    (
        r"connection (was )?lost|without exit status|not responding|connection (reset|timed out)|broken pipe",
        "the connection to {machine} broke while the step was at work, and it may still be at work there. See that "
        "{machine} is switched on and that ssh reaches it from here, then run up again: the step waits for the one "
        "that was cut off (up to 10 minutes; see /var/log/tailrack there) and begins anew",
    ),
)


def with_remedies(summary: Summary, make: Make = _NO_STACK) -> Summary:
    """Add a line `next: ...` to the failures of steps whose machine could not be reached.

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
            words = remedy.format(machine=label.machine, trust=make("trust"))
            return replace(failure, message=f"{failure.message}\nnext: {words}")
    return failure
