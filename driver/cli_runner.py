"""Runs a stack with the Pulumi CLI, by the Automation API, and tells of it in the words of engine.events."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from pulumi.automation import CommandError, LocalWorkspace, PulumiCommand, Stack
from pulumi.automation.events import EngineEvent, OpType, StepEventMetadata
from pulumi.runtime.rpc import UNKNOWN, is_rpc_secret

from components.steps.label import StepLabel
from driver.cli_processes import end_run
from driver.cli_words import meant
from driver.silent_hosts import Place, SilentHosts, place_of
from driver.workspace import DriverError, Workspace, write_private
from engine.events import Event, Failure, Made, Summary, command_of
from engine.values import HIDDEN

# What the CLI calls what it does, and the words people know. Of the parts of a replacement one stands for all: the
# others are `replace`, in which nothing is done, and `delete-replaced`.
_OPERATIONS = {
    OpType.CREATE: "create",
    OpType.UPDATE: "update",
    OpType.DELETE: "delete",
    OpType.SAME: "same",
    OpType.CREATE_REPLACEMENT: "replace",
}
# How the CLI calls a state in which something depends on what is not there.
_UNREADABLE = "refusing to use it"
_STACK_TYPE = "pulumi:pulumi:Stack"
# What it says of itself, as a warning: a provider that it did not fetch.
_WHERE_FROM = re.compile(r"using \S+ from \$PATH at ")
# What the CLI adds to every error of the program itself.
_EXIT_NOISE = "an unhandled error occurred: program exited"


class CliRunner:
    """One stack under the CLI; the same methods as engine.Engine.

    Failures of steps and of the program are in the summary. Raises DriverError where the CLI cannot start.
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
            raise DriverError(self._meant(error)) from None

    def made(self) -> list[Made]:
        """Return what the last run left."""
        try:
            self._stack()
            exported = self._exported(self._workspace.stack, "--show-secrets")
        except CommandError as error:
            raise DriverError(self._meant(error)) from None
        return [_made(each) for each in _resources(exported) if not each.get("delete")]

    def has(self, reference: str) -> bool:
        """Whether a stack, named as a StackReference names it, is there and has resources."""
        try:
            return bool(_resources(self._exported(reference)))
        except CommandError as error:
            if "no stack named" in str(error):
                return False
            raise DriverError(self._meant(error)) from None

    def leave_undone(self, type_: str) -> list[str]:
        """Have resources of a type deleted later without their command; their names. Nothing is deleted now."""
        stack = self._stack()
        self._clear_pending(stack)
        content, names = self._exported(self._workspace.stack), []
        for each in _resources(content):
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
            raise DriverError(self._meant(error)) from None

    def _clear_pending(self, stack: Stack) -> None:
        """Take away what a killed run left: its lock, and the note that it was in the middle of a step.

        Only called while this process holds the stack. Steps converge, so a step that was cut off is simply run again.
        Raises DriverError with the CLI's own words where it cannot.
        """
        for lock in self._workspace.in_backend("/*.json"):
            owner = _owner(lock)
            if _alive(owner):
                raise DriverError(
                    f"process {owner} is still working on stack {self._workspace.stack!r}, left by a run that was "
                    f"killed; wait for it or end it with 'kill {owner}'"
                )
            stack.cancel()
            break
        try:
            if (stack.export_stack().deployment or {}).get("pending_operations"):
                self._mended(lambda: stack.refresh(clear_pending_creates=True, color="never"))
        except CommandError as error:
            what = "" if self._interrupted else "what a killed run left cannot be cleared away: "
            raise DriverError(what + self._meant(error)) from None

    def _run(self, operation: Callable[[Callable[[EngineEvent], None]], Any], touches_hosts: bool = True) -> Summary:
        told, silent = _Telling(self._on_event), SilentHosts(self._places, end_run)

        def on_event(event: EngineEvent) -> None:
            told.on_event(event)
            silent.on_event(event)

        begun = time.monotonic()
        try:
            with silent if touches_hosts else nullcontext():
                self._mended(lambda: operation(on_event))
        except CommandError as error:
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
        """Run an operation; once more where the CLI cannot read the state that it wrote itself, which is mended.

        With --continue-on-error, 3.260 lets what was skipped depend on what was deleted in the same run. Mending takes
        such dependencies away; the program registers them anew.
        """
        try:
            operation()
        except CommandError as error:
            if _UNREADABLE not in str(error):
                raise
            self._pulumi("state", "repair", "--yes", "--stack", self._workspace.stack)
            operation()


def _resources(exported: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an exported stack has, without the stack itself."""
    listed = exported["deployment"].get("resources") or []
    return [each for each in listed if each["type"] != _STACK_TYPE]


def _made(exported: Mapping[str, Any]) -> Made:
    inputs, stdout = _shown(exported.get("inputs")), (exported.get("outputs") or {}).get("stdout", "")
    read = (urn for urns in (exported.get("propertyDependencies") or {}).values() for urn in urns or ())
    return Made(
        exported["urn"],
        command_of(inputs),
        str(inputs.get("stdin", "")),
        json.loads(stdout["plaintext"]) if is_rpc_secret(stdout) else str(stdout),
        sorted(set(read)),
        _opened((exported.get("inputs") or {}).get("connection")) or {},
    )


def _opened(value: Any) -> Any:
    """A value of an export with its secrets, as it is without their marks."""
    if is_rpc_secret(value):
        return _opened(json.loads(value["plaintext"]))
    return {key: _opened(item) for key, item in value.items()} if isinstance(value, dict) else value


def _named(failure: Failure, silent: SilentHosts) -> Failure:
    """A failure with the host that the run was ended for, where it is of a step there."""
    if failure.urn not in silent.found:
        return failure
    label = StepLabel.of(failure.command)
    return replace(failure, message=silent.text(failure.urn, label.machine if label else ""))


class _Telling:
    """Turns the CLI's events into ours and keeps count."""

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self.summary = Summary()
        self._on_event = on_event
        self._begun: dict[str, float] = {}
        self._said: dict[str, list[str]] = {}
        self._failed: list[str] = []
        self._commands: dict[str, str] = {}

    def on_event(self, event: EngineEvent) -> None:
        """Take one event of the CLI."""
        if event.resource_pre_event:
            self._step(event.resource_pre_event.metadata, "start")
        elif event.res_outputs_event:
            self._step(event.res_outputs_event.metadata, "done")
        elif event.res_op_failed_event:
            urn = event.res_op_failed_event.metadata.urn
            self._failed.append(urn)
            self._step(event.res_op_failed_event.metadata, "failed")
        elif (diagnostic := event.diagnostic_event) and diagnostic.severity == "warning":
            if not _WHERE_FROM.match(text := _plain(diagnostic.message)):
                self._on_event(Event("message", urn=diagnostic.urn or "", text=text))
        elif diagnostic and diagnostic.severity == "error":
            self._said.setdefault(diagnostic.urn or "", []).append(_plain(diagnostic.message))

    def stopped(self, reason: str, stack: str) -> None:
        """Keep what explains the error the CLI ended with. What the stack itself says is noise after a failed step."""
        steps = {urn: said for urn, said in self._said.items() if urn and f"::{_STACK_TYPE}::" not in urn}
        for urn in dict.fromkeys([*self._failed, *steps]):
            self.summary.failures.append(Failure(urn, "\n".join(steps.get(urn, [])), self._commands.get(urn, "")))
        if not self.summary.failures:
            said = [text for texts in self._said.values() for text in texts if not text.startswith(_EXIT_NOISE)]
            self.summary.failures.append(Failure("", meant("\n".join(said) or reason, stack)))

    def _step(self, metadata: StepEventMetadata, kind: str) -> None:
        self._commands[metadata.urn] = command = _command(metadata)
        operation = _OPERATIONS.get(metadata.op)
        if operation is None or metadata.type == _STACK_TYPE or metadata.type.startswith("pulumi:providers:"):
            return
        urn = metadata.urn
        seconds = 0.0
        if kind == "start":
            self._begun[urn] = time.monotonic()
        else:
            seconds = time.monotonic() - self._begun.get(urn, time.monotonic())
            if kind == "done":
                self.summary.counts[operation] += 1
        if operation != "same":
            event = Event(kind, operation, urn, urn.rsplit("::", 1)[-1], metadata.type, seconds, command=command)
            if kind == "start":
                old, new = metadata.old, metadata.new
                event = replace(
                    event,
                    before=_shown(old.inputs if old else None),
                    after=_shown(new.inputs if new else None),
                    outputs=_shown(old.outputs if old else None),
                )
            self._on_event(event)


def _command(metadata: StepEventMetadata) -> str:
    """What a resource runs, of the old state where there is no new one."""
    state = metadata.new or metadata.old
    return command_of((state.inputs if state else None) or {})


def _shown(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Inputs or outputs as the CLI tells of them, which marks a secret and gives no text of it."""
    return {key: HIDDEN if is_rpc_secret(value) else value for key, value in (values or {}).items()}


def _owner(lock: Path) -> int:
    """The process that a lock of the CLI's names; 0 for a lock that was cut off or holds something else."""
    try:
        content = json.loads(lock.read_bytes())
    except (ValueError, RecursionError):
        return 0
    pid = content.get("pid") if isinstance(content, dict) else None
    return pid if isinstance(pid, int) else 0


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return pid > 0 and not _ended(pid)


def _ended(pid: int) -> bool:
    """Whether a process is over and only waits for its parent to take notice (told by Linux alone)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state == "Z"


def _plain(text: str) -> str:
    """The message without the CLI's colour marks and without the command it repeats."""
    return re.sub(r"<\{%[^%]*%\}>", "", text).strip()


def _reason(error: CommandError) -> str:
    """The last lines of what the CLI said."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return "\n".join(line for line in lines if line.lstrip().startswith(("error:", "stderr:"))) or "\n".join(lines[-5:])
