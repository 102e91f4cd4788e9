"""Run a stack with the Pulumi CLI, by the Automation API, and report it as cli.run_events.

The CLI's own errors are several lines long, and name neither the file nor the remedy: one sentence replaces them.
"""

import json
import re
import secrets
import shlex
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from pulumi.automation import CommandError, LocalWorkspace, PulumiCommand, Stack
from pulumi.automation.events import EngineEvent
from pulumi.runtime.rpc import UNKNOWN

from cli.pulumi.events import EventTranslator, made_of, resources
from cli.pulumi.processes import end_plugins, end_run
from cli.pulumi.stack_locks import BUSY, Lock, locks_in_message
from cli.pulumi.workspace import CliError, Workspace, write_atomically
from cli.run_events import Event, Failure, Made, Summary
from cli.silent_hosts import Place, SilentHosts, place_of
from components.steps.label import StepLabel

# The CLI's errors (3.260) when it reads, and after it wrote, a state with a dependency on a missing resource.
_UNREADABLE, _BROKEN = "refusing to use it", "snapshot integrity failure"
# A variable of the CLI and the processes that it starts, by which these are found when it has died.
_RUN = "TAILRACK_RUN"


class CliRunner:
    """One stack under the CLI, with the methods of engine.Engine.

    The summary has failures of steps and of the program. Raises CliError if the CLI cannot start.
    """

    def __init__(
        self, workspace: Workspace, command: PulumiCommand, on_event: Callable[[Event], None], parallel: int = 32
    ) -> None:
        self._workspace, self._command, self._on_event, self._parallel = workspace, command, on_event, parallel
        self._interrupted = False
        self._run_mark = secrets.token_hex(16)

    def stop(self) -> None:
        """Record an interrupt. The CLI receives it too and ends, with an error that explains nothing."""
        self._interrupted = True

    def up(self, refresh: bool = False) -> Summary:
        """Bring the stack to the program's resources; `refresh` reads the present state from providers first."""
        up = partial(self._cleared_stack().up, refresh=refresh or None)
        return self._run(partial(up, continue_on_error=True, show_secrets=False))

    def preview(self, refresh: bool = False) -> Summary:
        """Return the changes that `up` would make; `refresh` reads the present state from providers first."""
        # From 3.276 on, the CLI writes its whole state at each step of a preview: 94 s instead of 25 for 250 hosts.
        stack = self._stack(PULUMI_SKIP_CHECKPOINTS="true")
        return self._run(partial(stack.preview, refresh=refresh or None), touches_hosts=False)

    def destroy(self) -> Summary:
        return self._run(partial(self._cleared_stack().destroy, continue_on_error=True, show_secrets=False))

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs with masked secrets, also inside of values."""
        self._stack()
        return self.outputs_of(self._workspace.stack)

    def outputs_of(self, reference: str) -> dict[str, Any]:
        """Return the same of another stack, named as Pulumi names it."""
        with self._explaining():
            # The SDK's method does not mask a secret inside of a value.
            values = json.loads(self._pulumi("stack", "output", "--json", "--stack", reference))
        # An output that needs a failed step is unknown, and left out.
        return {name: value for name, value in values.items() if value != UNKNOWN}

    def made(self) -> list[Made]:
        """Return the resources of the last run."""
        self._stack()
        with self._explaining():
            exported = self._exported(self._workspace.stack, "--show-secrets")
        return [made_of(resource) for resource in resources(exported) if not resource.get("delete")]

    def has(self, reference: str) -> bool:
        """Return whether a stack, named as Pulumi names it, exists and has resources."""
        try:
            return bool(resources(self._exported(reference)))
        except CommandError as error:
            if "no stack named" in str(error):
                return False
            raise CliError(self._explained(error)) from None

    def leave_undone(self, type_: str) -> list[str]:
        """Remove the delete commands of a type's resources from the state, and return the resources' names."""
        self._cleared_stack()
        names: list[str] = []
        with self._explaining():
            content = self._exported(self._workspace.stack)
            for resource in resources(content):
                if resource["type"] == type_ and "delete" in resource.get("inputs", {}):
                    names.append(resource["urn"].rpartition("::")[2])
                    for values in (resource["inputs"], resource.get("outputs", {})):
                        values.pop("delete", None)
            if names:
                # Secrets stay encrypted, as in the export.
                file = self._workspace.folder / "without-deletes.json"
                write_atomically(file, json.dumps(content))
                self._pulumi("stack", "import", "--stack", self._workspace.stack, "--file", str(file))
                file.unlink()
        return names

    def _exported(self, stack: str, *options: str) -> dict[str, Any]:
        exported: dict[str, Any] = json.loads(self._pulumi("stack", "export", "--stack", stack, *options))
        return exported

    def _pulumi(self, *arguments: str) -> str:
        folder, environment = str(self._workspace.folder), self._workspace.environment()
        done = self._command.run([*arguments, "--non-interactive"], folder, environment)
        return str(done.stdout)

    def _stack(self, **variables: str) -> Stack:
        with self._explaining():
            workspace = LocalWorkspace(
                work_dir=str(self._workspace.folder),
                pulumi_command=self._command,
                env_vars={**self._workspace.environment(), _RUN: self._run_mark, **variables},
            )
            return Stack.create_or_select(self._workspace.stack, workspace)

    def _cleared_stack(self) -> Stack:
        """Return the stack without the remains of a killed run. Raises CliError as `_clear_pending` does."""
        stack = self._stack()
        self._clear_pending(stack)
        return stack

    def _clear_pending(self, stack: Stack) -> None:
        """Remove the lock and the pending operations of a killed run.

        Call it only while this process holds the stack. Steps converge, so an interrupted step can run again. Raises
        CliError with the CLI's error if that fails.
        """
        locks = self._workspace.locks()
        self._refuse_held(locks)
        try:
            if locks:
                self._cancel()
            if (stack.export_stack().deployment or {}).get("pending_operations"):
                self._run_repaired(lambda: stack.refresh(clear_pending_creates=True, color="never"))
        except CommandError as error:
            prefix = "" if self._interrupted else "the remains of a killed run cannot be removed: "
            raise CliError(prefix + self._explained(error)) from None

    def _cancel(self) -> None:
        """Remove the CLI's locks; `pulumi cancel` does nothing else in a folder or a bucket."""
        self._pulumi("cancel", "--yes", "--stack", self._workspace.stack)

    def _refuse_held(self, locks: Iterable[Lock]) -> None:
        """Raise CliError for a lock whose run is, or may be, active."""
        stack = self._workspace.stack
        for lock in locks:
            if lock.held:
                raise CliError(
                    f"process {lock.pid} of this machine (pulumi) is still working on stack {stack!r}; wait for it, or "
                    f"end it with 'kill {lock.pid}'"
                )
            if lock.elsewhere:
                raise CliError(
                    f"stack {stack!r} is locked by a run of {lock.username} on {lock.hostname} (process {lock.pid}, "
                    f"since {lock.timestamp}); wait for it, or, if that run was killed, run: {self._unlock_command}"
                )

    @property
    def _unlock_command(self) -> str:
        """Return the command that removes a lock; it works in any shell."""
        backend = shlex.quote(self._workspace.backend_url)
        command = [self._command.command, "--cwd", str(self._workspace.folder), "cancel", self._workspace.stack]
        return f"PULUMI_BACKEND_URL={backend} {shlex.join(command)}"

    def _run(self, operation: Callable[..., Any], touches_hosts: bool = True) -> Summary:
        """Run a stack's operation, which gets the options of all operations, and return its summary."""
        events, silent = EventTranslator(self._on_event), SilentHosts(self._places, end_run)

        def on_event(event: EngineEvent) -> None:
            events.on_event(event)
            silent.on_event(event)

        begun = time.monotonic()
        try:
            with silent if touches_hosts else nullcontext():
                self._run_repaired(partial(operation, on_event=on_event, parallel=self._parallel, color="never"))
        except CommandError as error:
            if self._interrupted and not (touches_hosts and events.begun):
                raise CliError(self._explained(error)) from None
            events.end_with_error(_reason(error), self._explain)
            end_plugins(f"{_RUN}={self._run_mark}")
            if any(_BROKEN in text for text in (str(error), *(each.message for each in events.summary.failures))):
                self._repair_state()
        events.summary.failures = [_with_host(failure, silent) for failure in events.summary.failures]
        events.summary.seconds = time.monotonic() - begun
        return events.summary

    @contextmanager
    def _explaining(self) -> Iterator[None]:
        """Raise CliError in place of an error of the CLI."""
        try:
            yield
        except CommandError as error:
            raise CliError(self._explained(error)) from None

    def _explained(self, error: CommandError) -> str:
        if self._interrupted:
            return "stopped before any step started: run the same command again"
        return self._explain(_reason(error))

    def _explain(self, text: str) -> str:
        return explain(text, self._workspace.stack, self._workspace.state_path)

    def _places(self) -> dict[str, Place]:
        """Return the hosts of running steps, by URN. The CLI records a step with its inputs before it starts it."""
        try:
            exported = self._exported(self._workspace.stack, "--show-secrets")
        except (CommandError, ValueError):  # the caller tries again later
            return {}
        steps = [operation["resource"] for operation in exported["deployment"].get("pending_operations") or []]
        places = {step["urn"]: place_of(step.get("inputs") or {}) for step in steps}
        return {urn: place for urn, place in places.items() if place}

    def _run_repaired(self, operation: Callable[[], Any]) -> None:
        """Run an operation, and run it again after removing a dead lock, or repairing the stack's state."""
        try:
            operation()
        except CommandError as error:
            if locks := locks_in_message(str(error)):
                self._refuse_held(locks)
                self._cancel()
            elif BUSY in str(error):
                raise CliError(
                    f"Pulumi's service reports another run on stack {self._workspace.stack!r}; wait for it, or, if "
                    f"that run was killed, run: {self._unlock_command}"
                ) from None
            elif _UNREADABLE in str(error):
                self._repair_state()
            else:
                raise
            operation()

    def _repair_state(self) -> None:
        """Remove dependencies on missing resources from the state; the program registers them again.

        With --continue-on-error, 3.260 lets skipped resources depend on resources that the same run deletes. It may
        then die and leave its lock, which the repair would respect.
        """
        if locks := self._workspace.locks():
            self._refuse_held(locks)
            self._cancel()
        self._run_repaired(lambda: self._pulumi("state", "repair", "--yes", "--stack", self._workspace.stack))


def _with_host(failure: Failure, silent: SilentHosts) -> Failure:
    """Return a failure, with the silent host as its message if its step ran there."""
    if failure.urn not in silent.found:
        return failure
    label = StepLabel.of(failure.command)
    return replace(failure, message=silent.text(failure.urn, label.machine if label else ""))


def _reason(error: CommandError) -> str:
    """Return the error lines of the CLI's output, or its last lines."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n".join(line for line in lines if line.lstrip().startswith(("error:", "stderr:"))) or "\n".join(lines[-5:])


_ERRORS = tomllib.loads(Path(__file__).with_name("cli_errors.toml").read_text(encoding="utf-8"))["errors"]


def explain(text: str, stack: str, state: str) -> str:
    """Return our text for an error of the CLI; the error itself if no pattern matches.

    state   the path of the stack's state in the backend
    """
    meanings = (error["meaning"] for error in _ERRORS if re.search(error["pattern"], text))
    return next(meanings, "{text}").format(stack=repr(stack), state=state, text=text)
