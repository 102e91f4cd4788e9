"""The command of a step, and the text on its stdin.

Values never go into argv, which everyone can see in `ps`: they come on stdin, over the connection, some of them secret.
On another machine the plan and the program are files in the login's home (delivery.py). That login reads them, never
root: start.sh passes them to root through a pipe.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from components.roles.program import Program
from components.roles.role import Value
from components.steps.composition import Script

# Seconds. A step that hangs is ended at the limit, and killed 30 s later.
TIME_LIMIT_SECONDS = 1800
KILL_AFTER_SECONDS = 30
# The exit status of a step whose script is missing, and of one that printed other text than its answer (start.sh).
NO_SCRIPT, NO_ANSWER = 75, 76
# The environment of a local step.
ENVIRONMENT = "HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Read the program from the first line of stdin, put it in place, and run it with the rest. It is in argv, and constant.
_WHOLE = (
    "import base64,bz2,io,json,sys,zipfile;b=sys.stdin.buffer;v,a=json.loads(b.readline());"
    "d=bz2.decompress(base64.b64decode(a));exec(zipfile.ZipFile(io.BytesIO(d)).read('components/node/install.py'));sys.path[:0]=[install(d,v)];"
    "from components.node.step.main import main;sys.exit(main(sys.argv[1:],b))"
)
# Commands of steps, of this release and of earlier ones, which ran bash. Each further quoting adds quotes.
_UP = re.compile(
    r"""bash -euo pipefail (-s --|-c ['"]+eval "\$\(cat\)"['"]+ bash) up\b"""
    r"""|start-[0-9a-f]{8}\.sh up\b|components/node/install\.py.* up\b"""
)
# The last word of a step whose first line of stdin is the password for sudo.
BRINGS_SUDO = " password"
# start.sh. A change of it is a new name on machines: a step that does not run again needs the old one.
START_TEXT = Path(__file__).with_name("start.sh").read_text(encoding="utf-8")
START_DIGEST = hashlib.sha256(START_TEXT.encode()).hexdigest()
START = f"start-{START_DIGEST[:8]}.sh"
# Its functions that end a step: `explain_status` and `print_answer`.
END_OF_STEP = START_TEXT[START_TEXT.index("explain_status() {") :].rpartition("\nread_password ")[0]


def render_request(name: str, host: str, lock: str, repair: str, values: Mapping[str, Value]) -> str:
    """Return the stdin of a step whose plan and program are on the machine already: one JSON object."""
    request = {"name": name, "host": host, "lock": lock, "repair": repair, "values": values}
    return json.dumps(request, sort_keys=True, ensure_ascii=False, indent=1)


def kept_request(host: str, values: Mapping[str, Value]) -> str:
    """Return the request of a plan that stays on a machine (components/node/step/main.py), as one line."""
    return json.dumps({"host": host, "values": values}, sort_keys=True, ensure_ascii=False)


def render_whole(program: Program, script: Script, request: str) -> str:
    """Return the stdin of a step that brings its program: lines with the program, the plan and the request."""
    # Compressed: the state has it twice for each local step, and a head node has a step for each node.
    brought = json.dumps([program.digest, base64.b64encode(program.compressed).decode()])
    return f"{brought}\n{script.file}\n{request}"


def read_request(stdin: object) -> dict[str, str] | None:
    """Return the values in the stdin of a step as texts, by name; None if it is secret or unknown."""
    if not isinstance(stdin, str):
        return None
    try:
        request = json.loads(stdin if stdin.startswith("{") else stdin.split("\n", 2)[2])
        # A state of an earlier release has the names in capitals.
        return {name.lower(): _as_text(value) for name, value in request["values"].items()}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _as_text(value: Value) -> str:
    """Return a value as people read it: a list with one item per line, a table with spaces between a row's items."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    return "\n".join(str(row) if isinstance(row, str | int) else " ".join(map(str, row)) for row in value)


def whole_command(user: str | None, action: str, limit_seconds: int = TIME_LIMIT_SECONDS) -> str:
    """Return the constant command that reads everything from stdin, with sudo for all users but root.

    user   None for a local step: the command must not depend on the user who runs the program
    """
    python = f"timeout -k {KILL_AFTER_SECONDS} {limit_seconds} python3 -I -S -c {shlex.quote(_WHOLE)} {action}"
    if user is None:
        # Without the user's environment, which may contain a passphrase.
        line = f'case $(id -u) in 0) ;; *) set -- sudo -n ;; esac; answer=$(env -i {ENVIRONMENT} "$@" {python} here)'
    else:
        line = f"answer=$({'' if user == 'root' else 'sudo -n '}{python})"
    line = f"{END_OF_STEP}\n{line} || explain_status; print_answer"
    # The login shell may be any shell.
    return line if user is None else f"exec sh -c {shlex.quote(line)}"


def command(
    script: Script,
    program: Program,
    folder: str,
    action: str,
    limit_seconds: int = TIME_LIMIT_SECONDS,
    *,
    password: bool = False,
) -> str:
    """Return the command that starts a step from a folder (Machine.scripts_folder), with its request on stdin.

    password   whether the first line of stdin is the password for sudo

    It exits with NO_SCRIPT if a file in the folder is missing or incomplete.
    """
    line = (
        f"cd {shlex.quote(folder)} && "
        f'[ "$(sha256sum <{START})" = "{START_DIGEST}  -" ]'
        f' || {{ echo "~/{folder}/{START}: not there, or not whole" >&2; exit {NO_SCRIPT}; }}; '
        f"exec sh ./{START} {action} {program.digest} {script.digest} {limit_seconds}{BRINGS_SUDO if password else ''}"
    )
    # The login shell may be any shell.
    return f"exec sh -c {shlex.quote(line)}"


def is_step(command_line: str) -> bool:
    """Return whether a command runs the `up` of a step."""
    return bool(_UP.search(command_line))
