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

import asyncio
import hashlib
import json
from collections.abc import Callable, Collection, Coroutine, Generator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import pulumi
from pulumi_command import local, remote

from components.host import Connection, Machine
from components.steps.command_line import TIME_LIMIT_SECONDS, command, render_script, render_values, whole_command
from components.steps.composition import Script
from components.steps.label import StepLabel
from components.steps.last_answers import last_answer
from components.steps.results import Answer

T = TypeVar("T")

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


def connection_words(to: Connection) -> pulumi.Output[remote.ConnectionArgs]:
    """The provider's words for a connection. Nothing stands there for a bastion that is not: it would be a change."""

    def words(one: Connection) -> dict[str, Any]:
        return {
            "host": one.host,
            "port": one.port,
            "user": one.user,
            "private_key": one.private_key,
            "private_key_password": one.passphrase,
            "host_key": one.host_key,
        }

    def said(known: Mapping[str, Any]) -> dict[str, Any]:
        bounds = {"dial_error_limit": DIAL_ERROR_LIMIT, "per_dial_timeout": DIAL_TIMEOUT_SECONDS}
        return {**known, "port": float(known["port"]), **bounds}

    async def wait() -> tuple[set[pulumi.Resource], Any, bool, bool]:
        resources, of_host, known, secret = await _gathered(words(to))
        if to.bastion is None:
            return resources, remote.ConnectionArgs(**said(of_host)) if known else None, known, secret
        more, of_bastion, its_known, its_secret = await _gathered(words(to.bastion))
        all_known = known and its_known
        proxy = remote.ProxyConnectionArgs(**said(of_bastion)) if all_known else None
        made = remote.ConnectionArgs(**said(of_host), proxy=proxy) if all_known else None
        return resources | more, made, all_known, secret or its_secret

    return _of_parts(wait())


def made_of(values: Mapping[str, pulumi.Input[Any]], make: Callable[[Mapping[str, Any]], T]) -> pulumi.Input[T]:
    """Return what `make` makes of values by name: at once, unless some of them are Outputs.

    An Output costs a task, and the runtime's waiting for all of them grows faster than their number: for a thousand
    hosts the values that are known from the beginning would be most of the time of a preview.
    """
    late = {name: value for name, value in values.items() if isinstance(value, pulumi.Output)}
    if not late:
        return make(values)
    return _together(late).apply(lambda known: make({**values, **known}))


def _together(outputs: Mapping[str, pulumi.Output[Any]]) -> pulumi.Output[dict[str, Any]]:
    """Return the outputs as one, without Output.all's look for more of them inside of their values."""
    return _of_parts(_gathered(outputs))


async def _gathered(
    inputs: Mapping[str, pulumi.Input[Any]],
) -> tuple[set[pulumi.Resource], dict[str, Any], bool, bool]:
    """Wait for the Outputs among values by name: their resources, the values, whether all are known, any is secret."""
    resources: set[pulumi.Resource] = set()
    values, known, secret = dict(inputs), True, False
    for name, output in inputs.items():
        if isinstance(output, pulumi.Output):
            resources |= await output.resources()
            values[name] = await output.future(with_unknowns=True)
            known = known and await output.is_known()
            secret = secret or await output.is_secret()
    return resources, values, known, secret


class _Settled(pulumi.Output[T]):
    """An Output with no other in its value. The runtime looks for some, and makes a dozen Outputs of a connection."""

    def apply(self, func: Callable[[Any], Any], run_with_unknowns: bool = False) -> pulumi.Output[Any]:
        return self if func is pulumi.Output.from_input else super().apply(func, run_with_unknowns)


class _Part:
    """One of the values that a future gives. A coroutine in its place would be reported where nobody awaits it."""

    def __init__(self, whole: asyncio.Future[Any], index: int) -> None:
        self._whole, self._index = whole, index

    def __await__(self) -> Generator[Any, None, Any]:
        return (yield from self._whole.__await__())[self._index]


def secret_once_known(value: pulumi.Output[T]) -> pulumi.Output[T]:
    """Return the output as a secret when it is known, and unmarked when it is not.

    A value that depends on a failed step is unknown and has nothing to hide. Marked as secret it would make the CLI
    (3.260, "malformed RPC secret") end the whole run, the steps of healthy machines included.
    """

    async def wait() -> tuple[set[pulumi.Resource], Any, bool, bool]:
        content, known = await value.future(with_unknowns=True), await value.is_known()
        return await value.resources(), content, known, known

    return _of_parts(wait())


def _of_parts(
    parts: Coroutine[Any, Any, tuple[set[pulumi.Resource], Any, bool, bool]],
) -> pulumi.Output[Any]:
    """Return the output of which these are the resources, the value, whether it is known and whether it is secret."""
    told = asyncio.ensure_future(parts)
    return _Settled(*(_Part(told, index) for index in range(4)))


def _as_before(
    result: pulumi.Output[dict[str, Any]], before: dict[str, Any], connection: Connection | None
) -> pulumi.Output[dict[str, Any]]:
    """Return a preview's result of a step: where that is not known, what the step said before, on the same machine."""

    async def wait() -> tuple[set[pulumi.Resource], Any, bool, bool]:
        words = [pulumi.Output.from_input(word) for word in machine_words(connection)]
        same = all([await word.is_known() for word in words])
        if not same or await result.is_known():
            return await result.resources(), await result.future(with_unknowns=True), await result.is_known(), False
        return await result.resources(), before, True, False

    return _of_parts(wait())


def machine_words(connection: Connection | None) -> list[pulumi.Input[Any]]:
    """Return what says which machine a connection leads to, and not how."""
    return [connection.host, connection.port, connection.host_key] if connection else []


def _digest(
    script: Script, values: Mapping[str, pulumi.Input[Any]], connection: Connection | None
) -> pulumi.Output[str]:
    """A text, secret, that is another one when any of these is. Of a connection, which machine it leads to."""
    known = pulumi.Output.all(values=values, machine=machine_words(connection))

    def digest(of: Mapping[str, Any]) -> str:
        return hashlib.sha256(json.dumps([script.digest, of], sort_keys=True).encode()).hexdigest()

    return secret_once_known(known.apply(digest))


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
        values: Mapping[str, pulumi.Input[Any]],
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
        text = made_of(given, render_values if there else partial(render_script, script))
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
            return made_of({"machine": machine.name, "user": user}, said)

        # The two kinds of command differ in the way alone.
        kind: Any = remote if connection else local
        way = {"connection": connection_words(connection)} if connection else {"dir": "/"}
        self.resource: local.Command | remote.Command = kind.Command(
            name,
            **way,
            create=words("up"),
            update=words("recall") if measure is not None else None,
            delete=words("down") if script.undo else None,
            stdin=secret_once_known(pulumi.Output.from_input(text)) if hidden else text,
            triggers=triggers,
            logging=kind.Logging.NONE,
            add_previous_output_in_env=False,
            opts=pulumi.ResourceOptions(
                parent=parent,
                depends_on=list(depends_on),
                deleted_with=machine.deleted_with,
                # stderr is what a person reads of a failure; no script writes a secret there, and a test looks.
                additional_secret_outputs=["stdout"] if hidden else None,
                # A measurement has nothing to undo, and the old one must not outlive a failed new one.
                delete_before_replace=True if measure is not None else None,
                ignore_changes=ignored,
            ),
        )
        result = self.resource.stdout.apply(partial(answer.read, name))
        self.result: pulumi.Output[dict[str, Any]] = pulumi.Output.unsecret(result) if hidden else result
        # A measurement that is taken anew says something else.
        if measure is None and (before := answer.before(last_answer(name))):
            self.result = _as_before(self.result, before, connection)
