"""What the driver is told while a stack runs, by the CLI and by the in-process engine."""

from rich.console import Console

from cli.output.progress import Progress
from cli.preview.changed_lines import changed_lines
from cli.run_events import Event
from tests.engine.conftest import Deploy
from tests.engine.stack_under_test import Stack

PROGRAM = """
plain = step("plain", "exit {code}")
local.Command("hidden", create=pulumi.Output.secret(": hidden '' words; true"), delete=": gone; true")
later = local.Command("later", create=plain.stdout.apply(lambda text: f": later; echo {{text}}"))
"""
CREATE = "bash -euo pipefail -s"


def told(events: list[Event]) -> set[tuple[str, str, str, str]]:
    """What a run told of commands that it changed; the list is empty afterwards."""
    commands = [event for event in events if event.type.startswith("command:") and event.operation != "same"]
    events.clear()
    return {(event.kind, event.operation, event.name, event.command) for event in commands}


def test_events_carry_the_create_command_unless_it_is_secret_or_unknown(deploy: Deploy, stack: Stack) -> None:
    stack.write(PROGRAM.format(code=3), {"unused": 1})
    events: list[Event] = []
    deployment = deploy("dev", events)
    assert deployment.preview().ok
    both = [(kind, "create") for kind in ("start", "done")]
    hidden = {(*each, "hidden", "") for each in both}
    assert told(events) == hidden | {(*each, *step) for each in both for step in (("plain", CREATE), ("later", ""))}

    failed = deployment.up()
    assert [failure.command for failure in failed.failures] == [CREATE]
    failing = {(kind, "create", "plain", CREATE) for kind in ("start", "failed")}
    assert {event for event in told(events) if event[0] != "skipped"} == hidden | failing

    stack.write(PROGRAM.format(code=0), {"unused": 1})
    assert deployment.up().ok
    later = ": later; echo "
    assert told(events) == {*((*each, "plain", CREATE) for each in both), *((*each, "later", later) for each in both)}

    assert deployment.destroy().ok
    steps = ("hidden", ""), ("plain", CREATE), ("later", later)
    assert told(events) == {(kind, "delete", *step) for kind in ("start", "done") for step in steps}


def test_a_preview_tells_the_changed_lines_of_a_step_and_nothing_of_a_secret(deploy: Deploy, stack: Stack) -> None:
    program = """
def request(**values):
    return "exit\\n\\n" + json.dumps({{"values": values}})

plain = step("plain", request(SETTING="{value}"))
key = step("key", pulumi.Output.secret(request(KEY="{value}-nobody-may-see")))
"""
    stack.write(program.format(value="one"), {"unused": 1})
    events: list[Event] = []
    deployment = deploy("dev", events)
    assert deployment.up().ok
    stack.write(program.format(value="two"), {"unused": 1})
    events.clear()
    assert deployment.preview().ok
    said = {event.name: changed_lines(event.before, event.after) for event in events if event.kind == "start"}
    assert said["plain"] == ["# setting", "- one", "+ two"]
    assert said["key"] == ["# a value beside a secret, or the connection, changes"]
    assert "nobody-may-see" not in repr([(event.before, event.after) for event in events])


def test_a_program_that_refuses_its_config_has_begun_nothing(deploy: Deploy, stack: Stack) -> None:
    stack.write("raise pulumi.RunError('users is missing')", {"unused": 1})
    events: list[Event] = []
    summary = deploy("dev", events).up()
    assert [failure.urn for failure in summary.failures] == [""]
    progress = Progress(Console(quiet=True))
    for event in events:
        progress.on_event(event)
    assert not progress.begun
