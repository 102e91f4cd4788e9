"""`Step`, the only way to run a script on a host: a wrapper around pulumi-command's remote.Command and local.Command.

The reasons for its form were measured with pulumi-command 1.2.1:

- `create` and `delete` are constant, because a failed command prints them and `ps` shows them (and 128 KiB is their
  limit). The values are on stdin, one JSON object, which is never printed. The script has no secret and is on the
  machine already (delivery.py): the CLI writes its whole state twice per step, and the state has a step's stdin twice.
- Logging is off: a line of 64 KiB would hang the provider, and a secret in it would be printed live.
- `environment` is not used (sshd refuses it), nor is the previous output, which breaks the connection above 1 MB.
- Outputs do not inherit secrecy from stdin, so a step with a secret marks them secret.
- Any changed input, the connection too, runs `update` (without one, `create`). `triggers` replace: measurements only.
- `delete` uses the script and connection of the state, and a failed update keeps the old ones there.
- The time limit is inside the command: the engine's own limits do not stop a running command.
- The host key is pinned.

A step on the machine that runs the program is a local command with script and values on its stdin. As over SSH, it gets
none of the user's environment.

A script (steps/composition.py) has an action `up` and, if it has something to undo, an action `down`. Both converge:
they may run twice, be cut off anywhere, or start from a half-done state. `up` prints one JSON object. A measurement's
script also has an action `recall`: without an update command, pulumi-command would run `create` again for any changed
input, such as a comment in the script or a new SSH key.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import pulumi

from components.host import Connection, Machine
from components.roles.program import Program, program
from components.steps.command_line import TIME_LIMIT_SECONDS, command, render_request, render_whole, whole_command
from components.steps.composition import Script
from components.steps.label import StepLabel
from components.steps.resource import LOCAL, REMOTE, CommandResource, Options
from components.steps.results import Answer, last_answer
from components.steps.values import OutputParts, Value, combine, independent, output_from, resolve

# Dial errors until a host counts as down: about half a minute if it does not answer at all.
DIAL_ERROR_LIMIT = 5
DIAL_TIMEOUT_SECONDS = 10

# The connection to a machine that failed. The engine skips every step that needs the machine, but only after the
# provider has checked the step's inputs; it would end the whole run for a connection that is unknown.
_NO_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
_OF_NO_MACHINE = {"host": "failed.invalid", "port": 22.0, "user": "root", "hostKey": _NO_KEY}

# The lock of steps that change a host. A step without a lock takes this one only for its changes.
HOST_LOCK = "tailrack"

# The name of a text whose change runs the script again.
REPAIR = "step_repair"
# Names the password for sudo among the inputs of stdin.
_SUDO = "sudo password"


def parse_result(stdout: str) -> dict[str, Any]:
    """Return the JSON object that a step printed. Raises ValueError for any other output."""
    try:
        result = json.loads(stdout)
    except json.JSONDecodeError:
        result = None
    if not isinstance(result, dict):
        # The output is not quoted: it may be half of a secret.
        raise ValueError(f"a step must print one JSON object; this one printed {len(stdout)} characters of other text")
    return result


def connection_inputs(connection: Connection) -> pulumi.Output[dict[str, Any]]:
    """Return the provider's inputs for a connection, a secret once known. Inputs that are None are left out."""
    hops = {"": connection, "proxy": connection.bastion} if connection.bastion else {"": connection}
    inputs = {(hop, key): value for hop, target in hops.items() for key, value in _hop_inputs(target).items()}

    def hop_settings(resolved: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
        target_settings, *proxy = [
            {
                **{key: resolved[hop, key] for key in _hop_inputs(target) if resolved[hop, key] is not None},
                "port": float(resolved[hop, "port"]),
                "dialErrorLimit": DIAL_ERROR_LIMIT,
                "perDialTimeout": DIAL_TIMEOUT_SECONDS,
            }
            for hop, target in hops.items()
        ]
        return {**target_settings, "proxy": proxy[0]} if proxy else target_settings

    async def wait() -> OutputParts:
        resolved = await resolve(inputs)
        if resolved.known:
            return resolved.resources, hop_settings(resolved.values), True, True
        if pulumi.runtime.is_dry_run():
            return resolved.resources, None, False, False
        return resolved.resources, _OF_NO_MACHINE, True, True

    return output_from(wait())


def _hop_inputs(connection: Connection) -> dict[str, pulumi.Input[Any]]:
    return {
        "host": connection.host,
        "port": connection.port,
        "user": connection.user,
        "privateKey": connection.private_key,
        "privateKeyPassword": connection.passphrase,
        "hostKey": connection.host_key,
    }


def _result(
    name: str, stdout: pulumi.Output[str], answer: Answer, connection: Connection | None, *, open_: bool, again: bool
) -> pulumi.Output[dict[str, Any]]:
    """Return a step's result; in a preview, the last one if the next one is unknown and the machine stays the same.

    open_   the result is plain even if the stdout is secret
    again   the next answer will be a different one, so the last one is not used
    """
    last_result = None if again else answer.read_earlier(last_answer(name))
    machine = dict(enumerate(machine_identity(connection)))

    async def wait() -> OutputParts:
        resolved = await resolve({"stdout": stdout})
        secret = resolved.secret and not open_
        if resolved.known:
            return resolved.resources, answer.read(name, resolved.values["stdout"]), True, secret
        if last_result and (await resolve(machine)).known:
            return resolved.resources, last_result, True, False
        return resolved.resources, None, False, secret

    return output_from(wait())


def _unfinished(resources: Sequence[pulumi.Resource]) -> pulumi.Output[Any]:
    """Wait for the resources, and depend on those that failed or, in a preview, are still to run (independent())."""

    async def wait() -> OutputParts:
        pending = {each for each in resources if not await cast(CommandResource, each).stdout.is_known()}
        return pending, [], True, False

    return output_from(wait())


def machine_identity(connection: Connection | None) -> list[pulumi.Input[Any]]:
    """Return the values of a connection that identify its machine, without the login."""
    return [connection.host, connection.port, connection.host_key] if connection else []


def _digest(script: Script, values: Mapping[str, Value], connection: Connection | None) -> pulumi.Input[str]:
    """Return a secret text that changes with the script, a value or the machine of the connection."""
    machine = dict(enumerate(machine_identity(connection)))

    def digest(resolved: Mapping[str | int, Any]) -> str:
        inputs = {
            "values": {name: resolved[name] for name in values},
            "machine": [resolved[index] for index in machine],
        }
        return hashlib.sha256(json.dumps([script.digest, inputs], sort_keys=True).encode()).hexdigest()

    return combine({**values, **machine}, digest, hidden=True)


class Step:
    """One script on one machine. `resource` is the Pulumi resource, `result` the parsed answer.

    name        the name of the resource, of its log on the machine, and in errors and docs; domain words, no indexes
    label       the label that people see
    values      all available values, by header name. The script gets those that it reads, and waits for their Outputs
    secrets     like values, but secret. If the script reads one, its whole stdin and stdout are secret. `result` is
                still plain, so a script with secrets must not print any
    measure     a change of these values replaces the step, so it measures again. Any other change, such as a line of
                the script, only runs the script's `recall`, which prints the last measurement. In the state, such a
                step depends on no other one, because a run may delete those and skip it
    answer      the answer that the script has to print (components/steps/results.py)
    lock        the lock that the step holds from its beginning; None if the script locks the host only for its changes

    renewed     names of secrets that change from time to time and are needed only once. Their change alone runs
                nothing. Any other change replaces the step, which then uses the current secrets; an update would use
                the old ones. Only for a step that undoes nothing; not with `measure` or `once`

    once        the step runs once for this value, such as an instance's id. Only another value runs it again, over the
                connection of that time. For a connection that exists only once. The script and its program come with
                the step; those of any other step have to be on the machine already (components/steps/delivery.py)
    own_program   the program of a step with `once`

    Raises ValueError if the script reads a missing value, or if `renewed` is given and the script undoes something.
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
        own_program: Program | None = None,
    ) -> None:
        host_program = own_program or program()
        step_values = {"host_name": machine.name, REPAIR: values.get(REPAIR, "")}
        hidden = {key: value for key, value in (secrets or {}).items() if key in script.reads}
        available = {**values, **hidden, **step_values}
        if lacking := sorted(script.reads - available.keys()):
            raise ValueError(f"step {name} reads {', '.join(lacking)}, which it is not given")
        if renewed and script.undo:
            raise ValueError(f"step {name} has a `down`, which would run each time that a renewed secret replaces it")
        inputs = {key: available[key] for key in sorted(script.reads | step_values.keys())}
        connection = machine.connection
        delivered = connection is not None and once is None
        password = connection.sudo_password if connection and delivered else None
        secret = bool(hidden) or password is not None
        inputs_of_stdin = inputs if password is None else {**inputs, _SUDO: password}

        def render_stdin(resolved: Mapping[str, Any]) -> str:
            own = {key: resolved[key] for key in script.reads - step_values.keys()}
            request = render_request(name, resolved["host_name"], lock or "", resolved[REPAIR], own)
            if password is not None:
                return f"{resolved[_SUDO]}\n{request}"
            return request if delivered else render_whole(host_program, script, request)

        stdin = combine(inputs_of_stdin, render_stdin, hidden=secret)
        triggers: list[pulumi.Input[Any]] | None = None
        needs: Sequence[pulumi.Resource] | pulumi.Output[Any] = depends_on
        if measure is not None:
            stdin, triggers, needs = independent(stdin), [*map(independent, measure)], _unfinished(depends_on)
        ignored: list[str] | None = None
        if renewed:
            lasting = {key: value for key, value in inputs.items() if key not in renewed}
            triggers, ignored = [_digest(script, lasting, connection)], ["stdin"]
        if once is not None:
            triggers, ignored = [once], ["connection", "create", "stdin"]

        def command_line(action: str) -> pulumi.Input[str]:
            def render(resolved: Mapping[str, Any]) -> str:
                if delivered:
                    line = command(
                        *(script, host_program, machine.scripts_folder, action, limit_seconds),
                        password=password is not None,
                    )
                else:
                    line = whole_command(resolved["user"], action, limit_seconds)
                return StepLabel(name, resolved["machine"], label).on(line)

            # A step whose program is on the machine already needs no user, so previews of new machines have its label.
            user = connection.user if connection and not delivered else None
            return combine({"machine": machine.name, "user": user}, render)

        # Remote and local commands differ only in this input.
        target = {"connection": connection_inputs(connection)} if connection else {"dir": "/"}
        self.resource = CommandResource(
            REMOTE if connection else LOCAL,
            name,
            {
                **target,
                "create": command_line("up"),
                "update": command_line("recall") if measure is not None else None,
                "delete": command_line("down") if script.undo else None,
                "stdin": stdin,
                "triggers": triggers,
                "logging": "none",
                "addPreviousOutputInEnv": False,
            },
            Options(
                parent=parent,
                depends_on=needs,
                deleted_with=machine.deleted_with,
                # stderr stays plain for people to read. No script writes a secret there; a test checks that.
                secret_outputs=["stdout"] if secret else [],
                # A measurement has nothing to undo, and the old result must not outlive a failed new one.
                delete_before_replace=True if measure is not None else None,
                ignored=ignored,
            ),
        )
        self.result: pulumi.Output[dict[str, Any]] = _result(
            name,
            self.resource.stdout,
            answer,
            connection,
            open_=secret,
            # A new measurement has another result.
            again=measure is not None,
        )
