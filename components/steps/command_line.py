"""The command line of a step, and the text on its stdin.

bash reads the script from stdin, never from argv, which everyone can see in `ps`. The header has all values, some of
them secret, and comes over the connection. The script has no value. On another machine it is a file in the login's
home (steps/delivery.py), and that login reads it, never root. The call of the script comes last, over the connection,
so nothing runs with only a part of its values.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from components.roles.role import Value
from components.steps.composition import CALL, Script
from components.steps.header import header

# Seconds. A script that hangs is ended at the limit, and killed 30 s later.
TIME_LIMIT_SECONDS = 1800
KILL_AFTER_SECONDS = 30

# The exit status of a step whose script is missing.
NO_SCRIPT = 75

# The environment of a local step, and the argument that tells its script that it is local.
ENVIRONMENT = "HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
HERE = "here"

# Not `bash -s`: it reads a script on stdin byte by byte, to leave the rest to the programs that it starts. For half a
# megabyte that takes 0.15 s of CPU, seven times as long as this.
_BASH = """bash -euo pipefail -c 'eval "$(cat)"' bash"""
# An earlier version had `-s`. A command that is quoted again has more quotes than these.
_UP = re.compile(r"""bash -euo pipefail (-s --|-c ['"]+eval "\$\(cat\)"['"]+ bash) up\b""")


def render_script(script: Script, values: Mapping[str, Value]) -> str:
    """Return the whole stdin of a step whose script comes with its values."""
    return f"{header(values)}\n{script.file}{CALL}"


def render_values(values: Mapping[str, Value]) -> str:
    """Return the stdin of a step whose script is on the machine already."""
    return f"{header(values)}\n{CALL}"


def render_program(script: Script, values: Mapping[str, Value]) -> str:
    """Return a program that runs on a machine without a step. Raises KeyError for a missing value."""
    return "\n".join(["#!/bin/bash", header({name: values[name] for name in script.reads}), script.text])


def whole_command(user: str | None, action: str, limit_seconds: int = TIME_LIMIT_SECONDS) -> str:
    """Return the constant command that reads header and script from stdin, with sudo for all users but root.

    user   None for a local step: the command must not depend on the user who runs the program
    """
    bash = _bash(action, limit_seconds)
    if user is None:
        # Without the user's environment, which may contain a passphrase.
        return f'case $(id -u) in 0) ;; *) set -- sudo -n ;; esac; exec env -i {ENVIRONMENT} "$@" {bash} {HERE}'
    return f"exec {_as_root(user)}{bash}"


def command(script: Script, folder: str, user: str, action: str, limit_seconds: int = TIME_LIMIT_SECONDS) -> str:
    """Return the command that reads the script from a folder (Machine.scripts_folder) and its values from stdin.

    It exits with NO_SCRIPT if the script is missing or incomplete.
    """
    line = (
        f'f={shlex.quote(folder)}/{script.digest}; [ "$(sha256sum <$f)" = "${{f##*/}}  -" ]'
        f' || {{ echo "~/$f: not there, or not whole" >&2; exit {NO_SCRIPT}; }}; '
        f"cat $f - | {_as_root(user)}{_bash(action, limit_seconds)}"
    )
    # The login shell may be any shell.
    return f"exec sh -c {shlex.quote(line)}"


def is_step(command_line: str) -> bool:
    """Return whether a command runs the `up` of a step."""
    return bool(_UP.search(command_line))


def _as_root(user: str) -> str:
    return "" if user == "root" else "sudo -n "


def _bash(action: str, limit_seconds: int) -> str:
    return f"timeout -k {KILL_AFTER_SECONDS} {limit_seconds} {_BASH} {action}"
