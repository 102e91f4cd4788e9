"""Runs a stack with the Pulumi CLI, by the Automation API, and tells of it in the words of engine.events."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from pulumi.automation import CommandError, LocalWorkspace, PulumiCommand, Stack
from pulumi.automation.events import EngineEvent
from pulumi.runtime.rpc import UNKNOWN

from cli.pulumi.events import Telling
from cli.pulumi.locks import BUSY, Lock, locks_told
from cli.pulumi.messages import meant
from cli.pulumi.processes import end_run
from cli.pulumi.state import made_of, resources
from cli.pulumi.workspace import CliError, Workspace, write_private
from cli.silent_hosts import Place, SilentHosts, place_of
from components.steps.label import StepLabel
from engine.events import Event, Failure, Made, Summary

# How the CLI calls a state in which something depends on what is not there.
_UNREADABLE = "refusing to use it"


class CliRunner:
    """One stack under the CLI; the same methods as engine.Engine.

    Failures of steps and of the program are in the summary. Raises CliError where the CLI cannot start.
    """

    def __init__(
        self, workspace: Workspace, command: PulumiCommand, on_event: Callable[[Event], None], parallel: int = 32
    ) -> None:
        self._workspace, self._command, self._on_event, self._parallel = workspace, command, on_event, parallel
        self._interrupted = False

    def stop(self) -> None:
        """Note an interrupt. The CLI has it too and ends by itself, and what it says of that explains nothing."""
        self._interrupted = True

    def up(self, refresh: bool = False) -> Summary:
        """Bring the stack to what the program says, `refresh` after a look at what providers can be asked for."""
        stack = self._stack()
        self._clear_pending(stack)
        return self._run(
            lambda on_event: stack.up(
                on_event=on_event,
                parallel=self._parallel,
                continue_on_error=True,
                color="never",
                show_secrets=False,
                refresh=refresh or None,
            )
        )

    def preview(self, refresh: bool = False) -> Summary:
        """Say what `up` would do, `refresh` after a look at what providers can be asked for."""
        stack = self._stack()
        return self._run(
            lambda on_event: stack.preview(
                on_event=on_event, parallel=self._parallel, color="never", refresh=refresh or None
            ),
            touches_hosts=False,
        )

    def destroy(self) -> Summary:
        """Delete every resource of the stack."""
        stack = self._stack()
        self._clear_pending(stack)
        return self._run(
            lambda on_event: stack.destroy(
                on_event=on_event, parallel=self._parallel, continue_on_error=True, color="never", show_secrets=False
            )
        )

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs, secrets masked, also those inside of a value."""
        try:
            self._stack()
            # Not the SDK's own: a value with a secret inside comes back from it as it is.
            shown = json.loads(self._pulumi("stack", "output", "--json", "--stack", self._workspace.stack))
            # An output that needs a step which failed is unknown, and left out.
            return {name: value for name, value in shown.items() if value != UNKNOWN}
        except CommandError as error:
            raise CliError(self._meant(error)) from None

    def made(self) -> list[Made]:
        """Return what the last run left."""
        try:
            self._stack()
            exported = self._exported(self._workspace.stack, "--show-secrets")
        except CommandError as error:
            raise CliError(self._meant(error)) from None
        return [made_of(each) for each in resources(exported) if not each.get("delete")]

    def has(self, reference: str) -> bool:
        """Whether a stack, named as Pulumi names it, is there and has resources."""
        try:
            return bool(resources(self._exported(reference)))
        except CommandError as error:
            if "no stack named" in str(error):
                return False
            raise CliError(self._meant(error)) from None

    def leave_undone(self, type_: str) -> list[str]:
        """Have resources of a type deleted later without their command; their names. Nothing is deleted now."""
        stack = self._stack()
        self._clear_pending(stack)
        names: list[str] = []
        try:
            content = self._exported(self._workspace.stack)
            for each in resources(content):
                if each["type"] == type_ and "delete" in each.get("inputs", {}):
                    names.append(each["urn"].rpartition("::")[2])
                    for values in (each["inputs"], each.get("outputs", {})):
                        values.pop("delete", None)
            if names:
                # Its secrets are sealed, as they were exported.
                file = self._workspace.folder / "without-deletes.json"
                write_private(file, json.dumps(content))
                self._pulumi("stack", "import", "--stack", self._workspace.stack, "--file", str(file))
                file.unlink()
        except CommandError as error:
            raise CliError(self._meant(error)) from None
        return names

    def _exported(self, stack: str, *options: str) -> dict[str, Any]:
        exported: dict[str, Any] = json.loads(self._pulumi("stack", "export", "--stack", stack, *options))
        return exported

    def _pulumi(self, *words: str) -> str:
        """Run a command of the CLI and return what it printed. Raises CommandError."""
        folder, environment = str(self._workspace.folder), self._workspace.environment()
        done = self._command.run([*words, "--non-interactive"], folder, environment)
        return str(done.stdout)

    def _stack(self) -> Stack:
        try:
            workspace = LocalWorkspace(
                work_dir=str(self._workspace.folder),
                pulumi_command=self._command,
                env_vars=self._workspace.environment(),
            )
            return Stack.create_or_select(self._workspace.stack, workspace)
        except CommandError as error:
            raise CliError(self._meant(error)) from None

    def _clear_pending(self, stack: Stack) -> None:
        """Take away what a killed run left: its lock, and the note that it was in the middle of a step.

        Only called while this process holds the stack. Steps converge, so a step that was cut off is simply run again.
        Raises CliError with the CLI's own words where it cannot.
        """
        locks = self._workspace.locks()
        self._refuse_held(locks)
        try:
            if locks:
                self._cancel()
            if (stack.export_stack().deployment or {}).get("pending_operations"):
                self._mended(lambda: stack.refresh(clear_pending_creates=True, color="never"))
        except CommandError as error:
            what = "" if self._interrupted else "what a killed run left cannot be cleared away: "
            raise CliError(what + self._meant(error)) from None

    def _cancel(self) -> None:
        """Take the CLI's locks away, which is all that it does in a folder or a bucket."""
        self._pulumi("cancel", "--yes", "--stack", self._workspace.stack)

    def _refuse_held(self, locks: Iterable[Lock]) -> None:
        """Raise CliError for a lock whose run is at work, or may be."""
        stack = self._workspace.stack
        for lock in locks:
            if lock.held:
                raise CliError(
                    f"process {lock.pid} of this machine (pulumi) is still working on stack {stack!r}; wait for it, or "
                    f"end it with 'kill {lock.pid}'"
                )
            if lock.elsewhere:
                raise CliError(
                    f"stack {stack!r} is locked by a run of {lock.user} on {lock.host} (process {lock.pid}, since "
                    f"{lock.since}); wait for it, or, if that run was killed: {self._by_hand}"
                )

    @property
    def _by_hand(self) -> str:
        """The command that takes a lock away, whatever shell it is copied to."""
        backend = shlex.quote(self._workspace.backend_url)
        words = [self._command.command, "--cwd", str(self._workspace.folder), "cancel", self._workspace.stack]
        return f"PULUMI_BACKEND_URL={backend} {shlex.join(words)}"

    def _run(self, operation: Callable[[Callable[[EngineEvent], None]], Any], touches_hosts: bool = True) -> Summary:
        told, silent = Telling(self._on_event), SilentHosts(self._places, end_run)

        def on_event(event: EngineEvent) -> None:
            told.on_event(event)
            silent.on_event(event)

        begun = time.monotonic()
        try:
            with silent if touches_hosts else nullcontext():
                self._mended(lambda: operation(on_event))
        except CommandError as error:
            if self._interrupted and not (touches_hosts and told.begun):
                raise CliError(self._meant(error)) from None
            told.stopped(_reason(error), self._workspace.stack)
        told.summary.failures = [_named(failure, silent) for failure in told.summary.failures]
        told.summary.seconds = time.monotonic() - begun
        return told.summary

    def _meant(self, error: CommandError) -> str:
        if self._interrupted:
            return "stopped before a step was begun: run the same command again"
        return meant(_reason(error), self._workspace.stack)

    def _places(self) -> dict[str, Place]:
        """Where the steps under way are, by URN. The CLI writes a step down, with its inputs, before it begins it."""
        try:
            exported = self._exported(self._workspace.stack, "--show-secrets")
        except (CommandError, ValueError):  # asked again after a while
            return {}
        steps = [each["resource"] for each in exported["deployment"].get("pending_operations") or []]
        places = {step["urn"]: place_of(step.get("inputs") or {}) for step in steps}
        return {urn: place for urn, place in places.items() if place}

    def _mended(self, operation: Callable[[], Any]) -> None:
        """Run an operation; once more after what keeps the CLI from it was mended.

        That is a lock of a run that was killed, where the backend is no folder here; or a state that the CLI wrote
        itself and cannot read. With --continue-on-error, 3.260 lets what was skipped depend on what was deleted in the
        same run. Mending takes such dependencies away; the program registers them anew.
        """
        try:
            operation()
        except CommandError as error:
            if locks := locks_told(str(error)):
                self._refuse_held(locks)
                self._cancel()
            elif BUSY in str(error):
                raise CliError(
                    f"Pulumi's service says that another run is at work on stack {self._workspace.stack!r}; wait for "
                    f"it, or, if that run was killed: {self._by_hand}"
                ) from None
            elif _UNREADABLE in str(error):
                self._pulumi("state", "repair", "--yes", "--stack", self._workspace.stack)
            else:
                raise
            operation()


def _named(failure: Failure, silent: SilentHosts) -> Failure:
    """A failure with the host that the run was ended for, where it is of a step there."""
    if failure.urn not in silent.found:
        return failure
    label = StepLabel.of(failure.command)
    return replace(failure, message=silent.text(failure.urn, label.machine if label else ""))


def _reason(error: CommandError) -> str:
    """The last lines of what the CLI said."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n".join(line for line in lines if line.lstrip().startswith(("error:", "stderr:"))) or "\n".join(lines[-5:])
