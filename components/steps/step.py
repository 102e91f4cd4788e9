"""The one way to run a script on a host: `Step`, a wrapper around pulumi-command's remote.Command and local.Command.

Why it looks like this (measured, see docs/decisions/0002-one-step-wrapper.md):

- `create` and `delete` are constant words, because a failed command prints them whole and `ps` shows them. The
  values travel on stdin, which is never printed. The script, which has no secret, lies on the machine already
  (components/steps/delivery.py): the CLI writes its whole state twice a step, and a step's stdin is in it twice.
- logging is off: one long progress line would hang the provider, and a secret in it would be printed live.
- there is no `environment` (sshd refuses it) and no previous output in it.
- the time limit is inside the command: the engine's own limits do not stop a running command.
- the host key is pinned.

On the machine that the program runs on, a step is a local command with the script on its stdin too; it gets none of the
environment of whoever runs the program, as over SSH.

A script (steps/composition.py) has a function `up` and, where something must be undone, a function `down`. Both
converge: they may be run twice, be cut off anywhere, and start from a half-done state. `up` prints one JSON object.
One that measures has a function `recall` besides: pulumi-command runs `create` again for any changed input, a comment
in the script or a connection's key among them, unless there is another command for that.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import pulumi

from components.host import Connection, Machine
from components.steps.command import LOCAL, REMOTE, CommandResource, Options
from components.steps.command_line import TIME_LIMIT_SECONDS, command, render_script, render_values, whole_command
from components.steps.composition import Script
from components.steps.former_names import former_names
from components.steps.label import StepLabel
from components.steps.last_answers import last_answer
from components.steps.results import Answer
from components.steps.values import Parts, Value, as_output, combine, output_from, resolve

# Dial errors before a host counts as down: about half a minute where nothing answers at all.
DIAL_ERROR_LIMIT = 5
DIAL_TIMEOUT_SECONDS = 10

# The lock of the steps that change a host; a step without one takes it for its changes alone.
HOST_LOCK = "tailrack"

# Header name of a text that says nothing to a script but that it should run again.
REPAIR = "STEP_REPAIR"


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


def connection_words(to: Connection) -> pulumi.Output[dict[str, Any]]:
    """The provider's words for a connection, a secret once known. None for what is not there."""
    ways = {"": to, "proxy": to.bastion} if to.bastion else {"": to}
    inputs = {(way, word): value for way, one in ways.items() for word, value in _words(one).items()}

    def said(known: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
        own, *proxy = [
            {
                **{word: known[way, word] for word in _words(one) if known[way, word] is not None},
                "port": float(known[way, "port"]),
                "dialErrorLimit": DIAL_ERROR_LIMIT,
                "perDialTimeout": DIAL_TIMEOUT_SECONDS,
            }
            for way, one in ways.items()
        ]
        return {**own, "proxy": proxy[0]} if proxy else own

    return as_output(inputs, said, hidden=True)


def _words(to: Connection) -> dict[str, pulumi.Input[Any]]:
    return {
        "host": to.host,
        "port": to.port,
        "user": to.user,
        "privateKey": to.private_key,
        "privateKeyPassword": to.passphrase,
        "hostKey": to.host_key,
    }


def _result(
    name: str, stdout: pulumi.Output[str], answer: Answer, connection: Connection | None, *, open_: bool, again: bool
) -> pulumi.Output[dict[str, Any]]:
    """Return what holds of a step's answer; in a preview, where that is not known, of what it answered before.

    open_   it is plain, whatever the answer itself is
    again   what it will answer is another matter than what it did: it is not taken for that on another machine either
    """
    before = None if again else answer.before(last_answer(name))
    words = dict(enumerate(machine_words(connection)))

    async def wait() -> Parts:
        found = await resolve({"stdout": stdout})
        secret = found.secret and not open_
        if found.known:
            return found.resources, answer.read(name, found.values["stdout"]), True, secret
        if before and (await resolve(words)).known:
            return found.resources, before, True, False
        return found.resources, None, False, secret

    return output_from(wait())


def machine_words(connection: Connection | None) -> list[pulumi.Input[Any]]:
    """Return what says which machine a connection leads to, and not how."""
    return [connection.host, connection.port, connection.host_key] if connection else []


def _digest(script: Script, values: Mapping[str, Value], connection: Connection | None) -> pulumi.Input[str]:
    """A text, secret, that is another one when any of these is. Of a connection, which machine it leads to."""
    machine = dict(enumerate(machine_words(connection)))

    def digest(of: Mapping[str | int, Any]) -> str:
        told = {"values": {name: of[name] for name in values}, "machine": [of[index] for index in machine]}
        return hashlib.sha256(json.dumps([script.digest, told], sort_keys=True).encode()).hexdigest()

    return combine({**values, **machine}, digest, hidden=True)


class Step:
    """One script on one machine. `resource` is the Pulumi resource, `result` what holds of its answer.

    name        what everybody calls it: the resource, its log on the machine, errors, docs; domain words, no indexes
    label       what it does, in a few words for people
    values      what there is to read, by header name; the script gets what it reads, and waits for the Outputs among it
    secrets     like values, for what must never be seen: where the script reads one, the whole stdin and stdout are
                secret. `result` is still plain, so a script with secrets prints none of them.
    measure     a change of these replaces the step (a measurement is taken anew). Whatever else changes, such as a line
                of its script, only runs the script's `recall`, which says once more what was measured.
    answer      what it has to print, and what of it goes into `result` (components/steps/results.py)
    lock        the lock it holds from its beginning; None where the script takes the host's for its changes alone

    renewed     of the secrets, those that are another one from time to time, and are needed but once. Another one alone
                runs nothing. Whatever else changes makes the step anew, with those that are in force by then: an update
                would have to do with the old ones. For a step that undoes nothing; not with `measure` or `once`

    once        what it runs once for, such as an instance's id: another one runs it again, over the connection that is
                given then, and no other change does. For a connection that is there only once. Its
                script comes with it; every other one has to be on the machine by then (components/steps/delivery.py)

    Raises ValueError where the script reads a value that is not there, or is `renewed` and undoes something.
    """

    def __init__(
        self,
        name: str,
        machine: Machine,
        script: Script,
        values: Mapping[str, Value],
        *,
        label: str,
        answer: Answer,
        parent: pulumi.Resource,
        secrets: Mapping[str, pulumi.Input[str]] | None = None,
        measure: Sequence[pulumi.Input[Any]] | None = None,
        depends_on: Sequence[pulumi.Resource] = (),
        limit_seconds: int = TIME_LIMIT_SECONDS,
        lock: str | None = HOST_LOCK,
        renewed: Collection[str] = (),
        once: pulumi.Input[str] | None = None,
    ) -> None:
        own = {"HOST_NAME": machine.name, "STEP_NAME": name, "STEP_LOCK": lock or "", REPAIR: values.get(REPAIR, "")}
        hidden = {key: value for key, value in (secrets or {}).items() if key in script.reads}
        known = {**values, **hidden, **own}
        if lacking := sorted(script.reads - known.keys()):
            raise ValueError(f"step {name} reads {', '.join(lacking)}, which nobody gives it")
        if renewed and script.undo:
            raise ValueError(f"step {name} has something to undo, which would happen each time that it is made anew")
        given = {key: known[key] for key in sorted(script.reads | own.keys())}
        connection = machine.connection
        there = connection is not None and once is None
        text = combine(given, render_values if there else partial(render_script, script), hidden=bool(hidden))
        triggers: list[pulumi.Input[Any]] | None = list(measure) if measure is not None else None
        ignored: list[str] | None = None
        if renewed:
            lasting = {key: value for key, value in given.items() if key not in renewed}
            triggers, ignored = [_digest(script, lasting, connection)], ["stdin"]
        if once is not None:
            triggers, ignored = [once], ["connection", "create", "stdin"]

        def words(action: str) -> pulumi.Input[str]:
            def said(of: Mapping[str, Any]) -> str:
                how = partial(command, script, machine.scripts_folder) if there else whole_command
                return StepLabel(name, of["machine"], label).on(how(of["user"], action, limit_seconds))

            user = connection.user if connection else None
            return combine({"machine": machine.name, "user": user}, said)

        # The two kinds of command differ in the way alone.
        way = {"connection": connection_words(connection)} if connection else {"dir": "/"}
        self.resource = CommandResource(
            REMOTE if connection else LOCAL,
            name,
            {
                **way,
                "create": words("up"),
                "update": words("recall") if measure is not None else None,
                "delete": words("down") if script.undo else None,
                "stdin": text,
                "triggers": triggers,
                "logging": "none",
                "addPreviousOutputInEnv": False,
            },
            Options(
                parent=parent,
                depends_on=depends_on,
                deleted_with=machine.deleted_with,
                former_names=former_names(name),
                # stderr is what a person reads of a failure; no script writes a secret there, and a test looks.
                secret_outputs=["stdout"] if hidden else [],
                # A measurement has nothing to undo, and the old one must not outlive a failed new one.
                delete_before_replace=True if measure is not None else None,
                ignored=ignored,
            ),
        )
        self.result: pulumi.Output[dict[str, Any]] = _result(
            # A measurement that is taken anew says something else.
            name,
            self.resource.stdout,
            answer,
            connection,
            open_=bool(hidden),
            again=measure is not None,
        )
