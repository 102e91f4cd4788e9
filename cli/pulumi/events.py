"""Translate the Automation API's events of a Pulumi CLI run to cli.run_events."""

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pulumi.automation.events import EngineEvent, OpType, StepEventMetadata
from pulumi.runtime.rpc import is_rpc_secret

from cli.run_events import Event, Failure, Made, Summary, command_of
from components.settings.mask_secrets import MASK

STACK_TYPE = "pulumi:pulumi:Stack"


def resources(exported: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the resources of an exported stack, without the stack itself."""
    listed = exported["deployment"].get("resources") or []
    return [resource for resource in listed if resource["type"] != STACK_TYPE]


def made_of(exported: Mapping[str, Any]) -> Made:
    """Return a resource of an export with secrets; its connection is decrypted, other secrets are masked."""
    inputs, stdout = shown(exported.get("inputs")), (exported.get("outputs") or {}).get("stdout", "")
    read = (urn for urns in (exported.get("propertyDependencies") or {}).values() for urn in urns or ())
    return Made(
        exported["urn"],
        command_of(inputs),
        str(inputs.get("stdin", "")),
        json.loads(stdout["plaintext"]) if is_rpc_secret(stdout) else str(stdout),
        sorted(set(read)),
        opened((exported.get("inputs") or {}).get("connection")) or {},
        opened((exported.get("inputs") or {}).get("stdin")) or "",
    )


def opened(value: Any) -> Any:
    """Return a value of an export with secrets as plain values."""
    if is_rpc_secret(value):
        return opened(json.loads(value["plaintext"]))
    return {key: opened(item) for key, item in value.items()} if isinstance(value, dict) else value


def shown(values: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return inputs or outputs with every secret masked."""
    return {key: MASK if is_rpc_secret(value) else value for key, value in (values or {}).items()}


# The CLI's operations and ours. One part of a replacement stands for all: the others are `replace`, which does nothing,
# and `delete-replaced`.
_OPERATIONS = {
    OpType.CREATE: "create",
    OpType.UPDATE: "update",
    OpType.DELETE: "delete",
    OpType.SAME: "same",
    OpType.CREATE_REPLACEMENT: "replace",
}
# The CLI's warning about a provider that it did not fetch.
_WHERE_FROM = re.compile(r"using \S+ from \$PATH at ")
# The provider's error for a step on a machine that a failed step did not create.
_NO_MACHINE = "Missing required field 'connection'"
# The CLI adds this to every error of the program itself.
_EXIT_NOISE = "an unhandled error occurred: program exited"


class EventTranslator:
    """A translator of the CLI's events that counts operations; `begun` is true once a step with changes starts."""

    def __init__(self, on_event: Callable[[Event], None]) -> None:
        self.summary = Summary()
        self.begun = False
        self._on_event = on_event
        self._begun: dict[str, float] = {}
        self._errors: dict[str, list[str]] = {}
        self._failed: list[str] = []
        self._commands: dict[str, str] = {}
        self._counted: set[tuple[str, str]] = set()

    def on_event(self, event: EngineEvent) -> None:
        """Handle one event of the CLI."""
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
        elif diagnostic and diagnostic.severity == "info" and not diagnostic.urn:
            # Those of resources are the output of commands.
            self._on_event(Event("message", text=_plain(diagnostic.message)))
        elif diagnostic and diagnostic.severity == "error":
            self._errors.setdefault(diagnostic.urn or "", []).append(_plain(diagnostic.message))

    def end_with_error(self, reason: str, explained: Callable[[str], str]) -> None:
        """Record the failures that explain the CLI's error. After a failed step, errors of the stack are noise."""
        steps = {urn: texts for urn, texts in self._errors.items() if urn and f"::{STACK_TYPE}::" not in urn}
        if self._failed:
            steps = {urn: texts for urn, texts in steps.items() if not all(_NO_MACHINE in text for text in texts)}
        for urn in dict.fromkeys([*self._failed, *steps]):
            self.summary.failures.append(Failure(urn, "\n".join(steps.get(urn, [])), self._commands.get(urn, "")))
        if not self.summary.failures:
            errors = [text for texts in self._errors.values() for text in texts if not text.startswith(_EXIT_NOISE)]
            self.summary.failures.append(Failure("", explained("\n".join(errors) or reason)))

    def _step(self, metadata: StepEventMetadata, kind: str) -> None:
        self._commands[metadata.urn] = command = _command(metadata)
        operation = _OPERATIONS.get(metadata.op)
        if operation is None or metadata.type == STACK_TYPE or metadata.type.startswith("pulumi:providers:"):
            return
        urn = metadata.urn
        seconds = 0.0
        if kind == "start":
            self._begun[urn] = time.monotonic()
        else:
            seconds = time.monotonic() - self._begun.get(urn, time.monotonic())
            # The CLI reports the outputs of a component once more when the program sets them.
            if kind == "done" and (operation, urn) not in self._counted:
                self._counted.add((operation, urn))
                self.summary.counts[operation] += 1
        if operation != "same":
            event = Event(kind, operation, urn, urn.rsplit("::", 1)[-1], metadata.type, seconds, command=command)
            if kind == "start":
                self.begun = True
                old, new = metadata.old, metadata.new
                event = replace(
                    event,
                    before=shown(old.inputs if old else None),
                    after=shown(new.inputs if new else None),
                    outputs=shown(old.outputs if old else None),
                )
            self._on_event(event)


def _command(metadata: StepEventMetadata) -> str:
    """Return the command of a resource, from its old state if there is no new one."""
    state = metadata.new or metadata.old
    return command_of((state.inputs if state else None) or {})


def _plain(text: str) -> str:
    return re.sub(r"<\{%[^%]*%\}>", "", text).strip()
