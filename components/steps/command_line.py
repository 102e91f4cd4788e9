"""What is run on a machine for a step, and what it reads there.

bash gets the script from stdin, never from its argv: argv is for everyone to see in `ps`. The header, which has all
values and may be secret, comes over the connection. The script has none; on another machine it lies in the login's
home, where steps/delivery.py puts it, and is read from there by that login: never by root. What calls it comes
last, over the connection, so that nothing runs with a part of its values.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from components.roles.role import Value
from components.steps.composition import CALL, Script
from components.steps.header import header

# Seconds. The inner limit ends a script that hangs; 30 s later it is killed.
TIME_LIMIT_SECONDS = 1800
KILL_AFTER_SECONDS = 30

# The exit status of a step whose script is not there.
NO_SCRIPT = 75

# What a local step finds in its environment, and the word by which its script knows that it is one.
ENVIRONMENT = "HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HERE = "here"

# As a whole, since bash reads a script that comes on its stdin (`-s`) byte by byte, to leave the rest to what it
# starts: for half a megabyte 0.15 s of the CPU, seven times what this takes.
_BASH = """bash -euo pipefail -c 'eval "$(cat)"' bash"""
# An earlier version had `-s`; what is quoted once more has more than these quotes.
_UP = re.compile(r"""bash -euo pipefail (-s --|-c ['"]+eval "\$\(cat\)"['"]+ bash) up\b""")


def render_script(script: Script, values: Mapping[str, Value]) -> str:
    """Return all that bash reads, where the script comes with its values."""
    return f"{header(values)}\n{script.file}{CALL}"


def render_values(values: Mapping[str, Value]) -> str:
    """Return what bash reads after a script that is on the machine."""
    return f"{header(values)}\n{CALL}"


def render_program(script: Script, values: Mapping[str, Value]) -> str:
    """Return a program that runs on a machine by itself. Raises KeyError for a value that it reads and lacks."""
    return "\n".join(["#!/bin/bash", header({name: values[name] for name in script.reads}), script.text])


def whole_command(user: str | None, action: str, limit_seconds: int = TIME_LIMIT_SECONDS) -> str:
    """Return the constant command that reads header and script from stdin; everybody but root goes through sudo.

    user   None on this very machine: it is whoever runs the program, of which the command must not depend
    """
    bash = _bash(action, limit_seconds)
    if user is None:
        # The environment of whoever runs the program is not the script's business: it may hold a passphrase.
        return f'case $(id -u) in 0) ;; *) set -- sudo -n ;; esac; exec env -i {ENVIRONMENT} "$@" {bash} {HERE}'
    return f"exec {_as_root(user)}{bash}"


def command(script: Script, folder: str, user: str, action: str, limit_seconds: int = TIME_LIMIT_SECONDS) -> str:
    """Return the command that reads the script from a folder (Machine.scripts_folder) and its values from stdin.

    A script that was cut off on its way does not run. Exits with NO_SCRIPT where it is not there, or not whole.
    """
    words = (
        f'f={shlex.quote(folder)}/{script.digest}; [ "$(sha256sum <$f)" = "${{f##*/}}  -" ]'
        f' || {{ echo "~/$f: not there, or not whole" >&2; exit {NO_SCRIPT}; }}; '
        f"cat $f - | {_as_root(user)}{_bash(action, limit_seconds)}"
    )
    # The login's shell may be any.
    return f"exec sh -c {shlex.quote(words)}"


def is_step(words: str) -> bool:
    """Whether a command is one of these, to bring a machine to what its step says."""
    return bool(_UP.search(words))


def _as_root(user: str) -> str:
    return "" if user == "root" else "sudo -n "


def _bash(action: str, limit_seconds: int) -> str:
    return f"timeout -k {KILL_AFTER_SECONDS} {limit_seconds} {_BASH} {action}"
