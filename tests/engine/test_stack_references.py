"""One stack reads the outputs of another one of the same workspace, under either engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cli.pulumi.deployment import Deployment
from cli.pulumi.find_engine import IN_PROCESS
from cli.pulumi.workspace import CliError, Workspace
from engine.events import EngineError, Event, Summary
from tests.engine.conftest import needs_cli
from tests.engine.stack_under_test import Stack

Deploy = Callable[[str, list[Event]], Deployment]

# The stack `base` has outputs; every other one reads them by the reference of its config.
PROGRAM = """
if pulumi.get_stack() == "base":
    pulumi.export("address", "100.64.0.2")
    pulumi.export("head", dict(name="head", cpus=4, key=pulumi.Output.secret("hush-hush-key")))
    pulumi.export("token", pulumi.Output.secret("hush-hush-token"))
else:
    base = pulumi.StackReference("base-of-mine", pulumi.Config().require("base"))
    word = base.require_output("token").apply(lambda token: f"echo {{token}} >&2; exit {code}")
    step("used", word, depends_on=[base])
    pulumi.export("address", base.require_output("address"))
    pulumi.export("cpus", base.outputs["head"]["cpus"])
    pulumi.export("head", base.require_output("head"))
    pulumi.export("token", base.require_output("token"))
    pulumi.export("none", base.get_output("none").apply(str))
    pulumi.export("names", pulumi.Output.unsecret(base.secret_output_names))
    forms = ["organization/base", "organization/trial/base"]
    pulumi.export("again", [pulumi.StackReference(form).require_output("address") for form in forms])
"""


def write(stack: Stack, reference: str, code: int = 0) -> None:
    """Write the program and the configs of its two stacks."""
    stack.write(PROGRAM.format(code=code), {"base": reference})
    (stack.folder / "Pulumi.base.yaml").write_text("config: {}\n")


def told(summary: Summary, events: list[Event]) -> str:
    """All that a run said."""
    return "\n".join(map(repr, [*summary.failures, *events]))


def test_outputs_of_another_stack_are_read_and_its_secrets_stay_secret(deploy: Deploy, stack: Stack) -> None:
    write(stack, "base")
    assert deploy("base", []).up().ok
    events: list[Event] = []
    deployment = deploy("dev", events)
    assert deployment.preview().ok
    summary = deployment.up()
    assert summary.ok, summary.failures
    (asked,) = stack.host.take()
    assert asked.stdin == "echo hush-hush-token >&2; exit 0"
    assert deployment.outputs() == {
        "address": "100.64.0.2",
        "cpus": "[secret]",  # all outputs together are a secret where one of them is
        "head": "[secret]",
        "token": "[secret]",
        "none": "None",
        "names": ["head", "token"],
        "again": ["100.64.0.2", "100.64.0.2"],
    }
    assert "hush-hush" not in told(summary, events)
    # Nothing has changed, and the stack itself is gone without the other one.
    assert not any(deployment.up().counts[operation] for operation in ("create", "update", "replace", "delete"))
    assert deployment.destroy().ok
    assert deploy("base", []).outputs()["address"] == "100.64.0.2"


@pytest.mark.parametrize("deploy", [IN_PROCESS], indirect=True)
def test_a_secret_of_another_stack_is_in_no_message_of_a_failure(deploy: Deploy, stack: Stack) -> None:
    write(stack, "base", code=7)
    assert deploy("base", []).up().ok
    events: list[Event] = []
    summary = deploy("dev", events).up()
    assert "[secret]" in summary.failures[0].message
    assert "hush-hush" not in told(summary, events)


@pytest.mark.parametrize("reference", ["nope", "organization/trial/nope"])
def test_a_stack_that_is_not_there_is_named_and_nothing_is_run(deploy: Deploy, stack: Stack, reference: str) -> None:
    write(stack, reference)
    deployment = deploy("dev", [])
    try:
        message = "\n".join(failure.message for failure in deployment.up().failures)
    except CliError as error:
        message = str(error)
    assert reference in message
    assert stack.host.take() == []


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("other/trial/base", "organization/trial/<stack>"),
        ("organization/other/base", "organization/trial/<stack>"),
        ("trial/base", "organization/trial/<stack>"),
        ("organization/trial/..", "letters, digits"),
        ("", "letters, digits"),
        ("nope", "it was not made by this engine, which would have its state in "),
        ("damaged", "is damaged"),
    ],
)
def test_a_reference_that_the_engine_cannot_read_is_one_error_that_names_it(
    stack: Stack, reference: str, reason: str
) -> None:
    stack.write(f'step("fine", "true")\npulumi.StackReference("other", {reference!r})')
    stack.state_file.parent.mkdir()
    stack.state_file.with_stem("damaged").write_text("{")
    for operation in (stack.engine().preview, stack.engine().up):
        with pytest.raises(EngineError) as refused:
            operation()
        assert str(refused.value).startswith(f"stack {reference!r}, which this one references, cannot be read: ")
        assert reason in str(refused.value)
        assert "\n" not in str(refused.value)
    assert stack.host.take() == []
    assert not stack.state_file.exists()


@needs_cli
@pytest.mark.parametrize("deploy", ["cli"], indirect=True)
def test_a_stack_whose_backend_is_its_own_as_in_earlier_versions_is_taken_over(
    deploy: Deploy, stack: Stack, tmp_path: Path
) -> None:
    write(stack, "base")
    assert deploy("base", []).up().ok
    workspace = Workspace(stack.folder, "base", stack.folder / "Pulumi.base.yaml", tmp_path / "root")
    (workspace.backend / ".pulumi").rename(workspace.folder / ".pulumi")
    again = deploy("base", [])
    assert again.outputs()["address"] == "100.64.0.2"
    assert not (workspace.folder / ".pulumi").exists()
    assert deploy("dev", []).up().ok
    assert again.destroy().ok
    kept = {path.name for path in workspace.backend.rglob("*") if "base" in path.name}
    assert kept == set()
    assert deploy("dev", []).outputs()["address"] == "100.64.0.2"


OWN = """
before = pulumi.StackReference("last-run", stack_name=f"{pulumi.get_organization()}/trial/{pulumi.get_stack()}")
seen = before.get_output("runs").apply(lambda runs: runs or 0)
step("used", seen.apply(lambda runs: f"echo {int(runs)} earlier"))
pulumi.export("runs", seen.apply(lambda runs: int(runs) + 1))
"""


def test_a_stack_reads_its_own_outputs_of_the_run_before_and_none_in_its_first(deploy: Deploy, stack: Stack) -> None:
    stack.write(OWN, {"any": "text"})
    deployment = deploy("dev", [])
    assert deployment.preview().ok
    asked = []
    for _ in range(3):
        summary = deployment.up()
        assert summary.ok, summary.failures
        asked += [each.stdin for each in stack.host.take()]
    assert asked == ["echo 0 earlier", "echo 1 earlier", "echo 2 earlier"]
    assert deployment.outputs() == {"runs": 3}
