"""The one way to run a script on a host: `Step`, a wrapper around pulumi-command's remote.Command.

Why it looks like this (measured, see docs/decisions/0002-one-step-wrapper.md):

- `create` and `delete` are constant words, because a failed command prints them whole and `ps` shows them. The
  script and its values travel on stdin, which is never printed.
- logging is off: one long progress line would hang the provider, and a secret in it would be printed live.
- there is no `environment` (sshd refuses it) and no previous output in it.
- the time limit is inside the command: the engine's own limits do not stop a running command.
- the host key is pinned.

A script file has a function `up` and, where something must be undone, a function `down`. Both converge: they may
be run twice, be cut off anywhere, and start from a half-done state. `up` prints one JSON object.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pulumi
from pulumi_command import remote

from components.host import Host
from components.step_label import StepLabel

SCRIPTS = Path(__file__).parent / "scripts"

# Seconds. The inner limit ends a script that hangs; 30 s later it is killed.
TIME_LIMIT_SECONDS = 1800
KILL_AFTER_SECONDS = 30
# Dial errors before a host counts as down: about half a minute where nothing answers at all.
DIAL_ERROR_LIMIT = 5
DIAL_TIMEOUT_SECONDS = 10

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")

Value = str | int | Sequence[str]


def render_script(script: str, values: Mapping[str, Value], libraries: Sequence[str] = ()) -> str:
    """Return the text sent on stdin: quoted assignments, the library files, the script, the dispatcher.

    script and libraries name files in components/scripts (`join`, `lib/users`). Lists become one item a line.
    Raises ValueError for a name that is not an upper-case shell name. Pure: reads only the script files.
    """
    header = []
    for name, value in values.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a name a step's header can have (upper case, digits, underscores)")
        text = value if isinstance(value, str) else str(value) if isinstance(value, int) else "\n".join(value)
        header.append(f"{name}={shlex.quote(text)}")
    bodies = [(SCRIPTS / f"{name}.sh").read_text(encoding="utf-8") for name in ("lib/base", *libraries, script)]
    # The call is the last line, and not whole before its last brace, so a script cut off on its way does nothing. Its
    # stdin is empty: a command that read stdin would otherwise eat the rest of the script.
    return "\n".join([*header, f"STEP_NAME={shlex.quote(script)}", *bodies, '{ dispatch "$@" </dev/null; }', ""])


def command_line(user: str, action: str, limit_seconds: int = TIME_LIMIT_SECONDS) -> str:
    """Return the constant command that reads the script from stdin; everybody but root goes through sudo.

    bash reads the script from stdin, never from its argv: argv is for everyone to see in `ps`.
    """
    sudo = "" if user == "root" else "sudo -n "
    return f"exec {sudo}timeout -k {KILL_AFTER_SECONDS} {limit_seconds} bash -euo pipefail -s -- {action}"


def parse_result(stdout: str) -> dict[str, Any]:
    """Return the JSON object a step printed. Raises ValueError naming what came instead."""
    try:
        result = json.loads(stdout)
    except json.JSONDecodeError:
        result = None
    if not isinstance(result, dict):
        # What it printed is not quoted: it may be half of something secret.
        raise ValueError(f"a step must print one JSON object; this one printed {len(stdout)} characters that are none")
    return result


def secret_once_known(value: pulumi.Output[str]) -> pulumi.Output[str]:
    """Return the output as a secret when it is known, and unmarked when it is not.

    A value that depends on a failed step is unknown and has nothing to hide. Marked as secret it would make the CLI
    (3.260, "malformed RPC secret") end the whole run, the steps of healthy machines included.
    """
    content = cast(Awaitable[str], value.future(with_unknowns=True))
    return pulumi.Output(value.resources(), content, value.is_known(), value.is_known())


class Step:
    """One script on one host. `resource` is the Pulumi resource, `result` the JSON object the script printed.

    name        the resource's name: `<host>-<step>`, domain words and no indexes
    label       what the step does, in a few words for people (`a1: look at the machine`)
    values      header assignments; an Output among them makes the step wait for it
    secrets     like values, for what must never be seen: the whole stdin and stdout become secret. `result`
                is still plain, so a script with secrets prints none of them.
    measure     a change of these replaces the step instead of updating it (a measurement is taken anew)
    undo        whether the script has a `down` for delete
    lifeline    not undone when this resource is deleted in the same operation; by default the host's own
    """

    def __init__(
        self,
        name: str,
        host: Host,
        script: str,
        values: Mapping[str, pulumi.Input[Any]],
        *,
        label: str,
        parent: pulumi.Resource,
        libraries: Sequence[str] = (),
        secrets: Mapping[str, pulumi.Input[str]] | None = None,
        measure: Sequence[pulumi.Input[Any]] | None = None,
        undo: bool = False,
        lifeline: pulumi.Resource | None = None,
        depends_on: Sequence[pulumi.Resource] = (),
        limit_seconds: int = TIME_LIMIT_SECONDS,
    ) -> None:
        header: dict[str, Any] = {"HOST_NAME": host.name, **values}
        plain = pulumi.Output.all(**header)
        text: pulumi.Output[str]
        if secrets:
            text = secret_once_known(
                pulumi.Output.all(**header, **secrets).apply(lambda all_: render_script(script, all_, libraries))
            )
        else:
            text = plain.apply(lambda all_: render_script(script, all_, libraries))
        gone_with = lifeline or host.lifeline
        words = StepLabel(name, host.name, label)
        self.resource = remote.Command(
            name,
            connection=remote.ConnectionArgs(
                host=host.connection.host,
                port=pulumi.Output.from_input(host.connection.port).apply(float),
                user=host.connection.user,
                private_key=host.connection.private_key,
                host_key=host.connection.host_key,
                dial_error_limit=DIAL_ERROR_LIMIT,
                per_dial_timeout=DIAL_TIMEOUT_SECONDS,
            ),
            create=words.on(command_line(host.connection.user, "up", limit_seconds)),
            delete=words.on(command_line(host.connection.user, "down", limit_seconds)) if undo else None,
            stdin=text,
            triggers=list(measure) if measure is not None else None,
            logging=remote.Logging.NONE,
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=parent,
                depends_on=list(depends_on),
                deleted_with=gone_with,
                # stderr is what a person reads of a failure; no script writes a secret there, and a test looks.
                additional_secret_outputs=["stdout"] if secrets else None,
                # A measurement has nothing to undo, and the old one must not outlive a failed new one.
                delete_before_replace=True if measure is not None else None,
            ),
        )
        result = self.resource.stdout.apply(parse_result)
        self.result: pulumi.Output[dict[str, Any]] = pulumi.Output.unsecret(result) if secrets else result
