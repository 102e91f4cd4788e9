"""A stack reads outputs: its own, and those of another stack of the same workspace, under either engine."""

import os
import subprocess
from pathlib import Path

import pytest

from cli.pulumi.find_engine import IN_PROCESS
from cli.pulumi.workspace import CliError, Workspace
from cli.run_events import EngineError, Event, Summary
from tests.engine.conftest import Deploy, needs_cli
from tests.engine.stack_under_test import Stack

READ = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2])!r})
from stacks.read_outputs import read_outputs
"""

# The stack `base` has outputs; every other one reads them by the name in its config.
PROGRAM = (
    READ
    + """
async def main():
    if pulumi.get_stack() == "base":
        pulumi.export("address", "100.64.0.2")
        pulumi.export("head", dict(name="head", cpus=4, key=pulumi.Output.secret("hush-hush-key")))
        pulumi.export("token", pulumi.Output.secret("hush-hush-token"))
        return
    base = await read_outputs(pulumi.Config().require("base"))
    step("used", base.output("token").apply(lambda token: f"echo {{token}} >&2; exit {code}"))
    for name in ("address", "head", "token"):
        pulumi.export(name, base.output(name))
    pulumi.export("cpus", base.value("head")["cpus"])
    pulumi.export("none", base.output("none").apply(str))
    pulumi.export("names", sorted(base.secrets))
    forms = ["organization/base", "organization/trial/base"]
    pulumi.export("again", [(await read_outputs(form)).output("address") for form in forms])

pulumi.run(main)
"""
)


def write(stack: Stack, base: str, code: int = 0) -> None:
    """Write the program and the configs of its two stacks."""
    stack.write(PROGRAM.format(code=code), {"base": base})
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
    secrets = {"head": "[secret]", "token": "[secret]", "names": ["head", "token"]}
    plain = {"address": "100.64.0.2", "cpus": 4, "none": "None", "again": ["100.64.0.2", "100.64.0.2"]}
    assert deployment.outputs() == {**secrets, **plain}
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


@pytest.mark.parametrize("name", ["nope", "organization/trial/nope"])
def test_a_stack_that_is_not_there_is_named_and_nothing_is_run(deploy: Deploy, stack: Stack, name: str) -> None:
    write(stack, name)
    deployment = deploy("dev", [])
    try:
        message = "\n".join(failure.message for failure in deployment.up().failures)
    except CliError as error:
        message = str(error)
    assert f"stack {name!r}" in message
    assert "cannot be read: " in message
    assert "\n" not in message
    assert stack.host.take() == []


@pytest.mark.parametrize(
    ("name", "reason"),
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
def test_a_stack_that_the_engine_cannot_read_is_one_error_that_names_it(stack: Stack, name: str, reason: str) -> None:
    function = "pulumi:pulumi:readStackOutputs"
    stack.write(f'step("fine", "true")\npulumi.runtime.invoke({function!r}, {{"name": {name!r}}})')
    stack.state_file.parent.mkdir()
    stack.state_file.with_stem("damaged").write_text("{")
    for operation in (stack.engine().preview, stack.engine().up):
        with pytest.raises(EngineError) as refused:
            operation()
        assert str(refused.value).startswith(f"stack {name!r}, whose outputs this one reads, cannot be read: ")
        assert reason in str(refused.value)
        assert "\n" not in str(refused.value)
    assert stack.host.take() == []
    assert not stack.state_file.exists()


OWN = (
    READ
    + """
async def main():
    before = await read_outputs(f"{pulumi.get_organization()}/trial/{pulumi.get_stack()}")
    runs = int(before.outputs.get("runs", 0))
    used = step("used", pulumi.Config().get("script") or f"echo {runs} earlier")
    nested = {"said": used.stdout, "token": used.stdout.apply(lambda _: pulumi.Output.secret("hush-hush-token"))}
    for name, value in before.completed({"runs": used.stdout.apply(lambda _: runs + 1), "nested": nested}).items():
        pulumi.export(name, value)

pulumi.run(main)
"""
)


def test_a_stack_reads_its_own_outputs_of_the_last_run_that_knew_them(deploy: Deploy, stack: Stack) -> None:
    stack.write(OWN, {"any": "text"})
    deployment = deploy("dev", [])
    assert deployment.preview().ok
    asked = []
    for _ in range(3):
        summary = deployment.up()
        assert summary.ok, summary.failures
        asked += [each.stdin for each in stack.host.take()]
    assert asked == ["echo 0 earlier", "echo 1 earlier", "echo 2 earlier"]
    kept = {"runs": 3, "nested": {"said": "2 earlier", "token": "[secret]"}}
    assert deployment.outputs() == kept
    # A failed step leaves outputs unknown: the last ones stay, also if a second run fails. The engine does not say
    # which part of an output was secret, so all of it is.
    kept |= {"nested": dict.fromkeys(("said", "token"), "[secret]")}
    stack.write(OWN, {"script": "exit 3"})
    for _ in range(2):
        assert not deploy("dev", []).up().ok
        assert deployment.outputs() == kept


NOW = (
    READ
    + """
async def main():
    before = await read_outputs(f"{pulumi.get_organization()}/trial/{pulumi.get_stack()}")
    step("used", before.output("none").apply(lambda _: "true"), triggers=[before.output("none")])
    pulumi.export("token", pulumi.Output.secret("hush-hush-token"))
    pulumi.export("address", "100.64.0.2")

pulumi.run(main)
"""
)


def preview_diff(stack: Stack, tmp_path: Path) -> str:
    """What `pulumi preview --diff` of `dev` prints."""
    workspace = Workspace(stack.folder, "dev", stack.folder / "Pulumi.dev.yaml", tmp_path / "root")
    words = ["pulumi", "preview", "--diff", "--stack", "dev", "--non-interactive", "--color", "never"]
    environment = {**os.environ, **workspace.environment()}
    return subprocess.check_output(words, cwd=workspace.folder, env=environment, stderr=subprocess.PIPE, text=True)


@needs_cli
@pytest.mark.parametrize("deploy", ["cli"], indirect=True)
def test_outputs_that_a_stack_reads_are_not_in_a_previews_diff(deploy: Deploy, stack: Stack, tmp_path: Path) -> None:
    stack.write(NOW, {"any": "text"})
    assert deploy("dev", []).up().ok
    diff = preview_diff(stack, tmp_path)
    assert "2 unchanged" in diff
    assert not [word for word in ("address", "100.64.0.2", "token", "StackReference", "outputs") if word in diff], diff
