"""Failures and messages of a run of the Pulumi CLI, translated from its events."""

from pulumi.automation.events import (
    DiagnosticEvent,
    EngineEvent,
    OpType,
    ResOpFailedEvent,
    ResOutputsEvent,
    StepEventMetadata,
)

from cli.pulumi.events import EventTranslator
from cli.run_events import Event

_MACHINE = "urn:pulumi:dev::tailrack::command:local:Command::g1-machine"
_HOST_KEY = "urn:pulumi:dev::tailrack::command:remote:Command::g1-host-key"
_LACKING = (
    "'g1-host-key': property connection has a problem: Missing required field 'connection' on 'remote.CommandInputs'"
)


def diagnostic(text: str, severity: str, urn: str | None) -> EngineEvent:
    return EngineEvent(1, 1, diagnostic_event=DiagnosticEvent(text, "never", severity, urn=urn))


def failed(urn: str) -> EngineEvent:
    step = StepEventMetadata(OpType.CREATE, urn, "command:local:Command", "")
    return EngineEvent(1, 1, res_op_failed_event=ResOpFailedEvent(step, 1, 1))


def test_a_step_on_a_machine_that_was_not_created_is_no_failure_beside_the_machines() -> None:
    events = EventTranslator(lambda event: None)
    lacking = diagnostic(_LACKING, "error", _HOST_KEY)
    for event in (failed(_MACHINE), diagnostic("no machine for g1", "error", _MACHINE), lacking):
        events.on_event(event)
    events.end_with_error("update failed", str)
    assert [(failure.urn, failure.message) for failure in events.summary.failures] == [(_MACHINE, "no machine for g1")]


def test_a_step_without_a_connection_is_the_failure_if_no_other_step_failed() -> None:
    events = EventTranslator(lambda event: None)
    events.on_event(diagnostic(_LACKING, "error", _HOST_KEY))
    events.end_with_error("update failed", str)
    assert [failure.urn for failure in events.summary.failures] == [_HOST_KEY]


def test_the_programs_own_notes_are_messages_and_the_output_of_commands_is_not() -> None:
    seen = list[Event]()
    events = EventTranslator(seen.append)
    events.on_event(diagnostic("1.29 USD an hour each", "info", None))
    events.on_event(diagnostic("line of a command", "info", _MACHINE))
    assert [(event.kind, event.text) for event in seen] == [("message", "1.29 USD an hour each")]


def test_a_resource_with_repeated_outputs_counts_once() -> None:
    events = EventTranslator(lambda event: None)
    step = StepEventMetadata(OpType.CREATE, _MACHINE, "tailrack:cluster:ComputeNode", "")
    for _ in range(2):
        events.on_event(EngineEvent(1, 1, res_outputs_event=ResOutputsEvent(step)))
    assert events.summary.counts["create"] == 1
