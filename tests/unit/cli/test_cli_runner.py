"""What the driver does about a run of the CLI that was killed, and about its errors."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pulumi.automation import CommandError, CommandResult, PulumiCommand

from cli.pulumi.deployment import Deployment
from cli.pulumi.events import made_of
from cli.pulumi.find_engine import Found
from cli.pulumi.runner import CliRunner
from cli.pulumi.workspace import PROJECT, CliError, Workspace
from cli.run_events import Summary


def test_a_failed_cleanup_after_a_kill_shows_the_clis_words_and_is_no_bug() -> None:
    def refresh(**_: Any) -> None:
        raise CommandError(CommandResult("", "error: the disk is full\n", 255))

    pending = SimpleNamespace(deployment={"pending_operations": [{}]})
    stack = SimpleNamespace(export_stack=lambda: pending, refresh=refresh)
    workspace = SimpleNamespace(locks=lambda: [], stack="dev", state_path="")
    runner = CliRunner(cast(Any, workspace), cast(Any, None), lambda event: None)
    with pytest.raises(CliError, match=r"the remains of a killed run cannot be removed: .*the disk is full"):
        runner._clear_pending(cast(Any, stack))


def test_only_a_preview_writes_no_state_at_each_step(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    variables = list[dict[str, str]]()

    class Summary:
        def __getattr__(self, name: str) -> Any:
            return lambda **_: SimpleNamespace(deployment={})

    def select(stack: str, workspace: Any) -> Summary:
        variables.append(workspace["env_vars"])
        return Summary()

    monkeypatch.setattr("cli.pulumi.runner.LocalWorkspace", dict)
    monkeypatch.setattr("cli.pulumi.runner.Stack", SimpleNamespace(create_or_select=select))
    runner = CliRunner(workspace, cast(Any, None), print)
    assert all(run().ok for run in (runner.up, runner.preview, runner.destroy))
    assert ["PULUMI_SKIP_CHECKPOINTS" in each for each in variables] == [False, True, False]


def test_an_up_alone_decides_the_engine_of_a_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"PULUMI_CONFIG_PASSPHRASE": "none"})
    config = tmp_path / "Pulumi.dev.yaml"
    config.write_text("config: {}\n")

    def deployment(engine: PulumiCommand | None) -> Deployment:
        made = Deployment(Workspace(PROJECT, "dev", config, tmp_path), Found(engine, ""), lambda event: None)
        for name, answer in {"made": [], "outputs": {}, "preview": Summary(), "up": Summary()}.items():
            monkeypatch.setattr(made._runner, name, lambda answer=answer: answer)
        return made

    cli = cast(PulumiCommand, object())
    deployment(None).preview()
    deployment(cli).preview()
    deployment(None).up()
    with pytest.raises(CliError, match="'dev' was created by the engine 'inprocess'"):
        deployment(cli)


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A stack that has been run before: the CLI keeps a history of it."""
    workspace = Workspace(PROJECT, "dev", tmp_path / "Pulumi.dev.yaml", tmp_path)
    for kind in ("history", "backups"):
        keep(workspace, f"{kind}/tailrack/dev/dev-1795642260415893327.{kind}.json", {})
    return workspace


def keep(workspace: Workspace, path: str, content: dict[str, Any]) -> None:
    file = workspace.backend / ".pulumi" / path
    file.parent.mkdir(parents=True)
    file.write_text(json.dumps(content), encoding="utf-8")


def test_only_a_lock_is_taken_for_one_that_a_killed_run_left(workspace: Workspace) -> None:
    called = list[str]()
    stack = SimpleNamespace(export_stack=lambda: SimpleNamespace(deployment={}))

    def run(words: list[str], *_: Any) -> SimpleNamespace:
        called.append(words[0])
        return SimpleNamespace(stdout="")

    command = SimpleNamespace(run=run)
    runner = CliRunner(workspace, cast(Any, command), print)
    runner._clear_pending(cast(Any, stack))
    assert not called
    # No process has this number.
    keep(workspace, "locks/organization/tailrack/dev/6e4c.json", {"pid": 2**30})
    runner._clear_pending(cast(Any, stack))
    assert called == ["cancel"]


WRONG = "the passphrase does not decrypt the state of stack 'dev'; set PULUMI_CONFIG_PASSPHRASE_FILE (or"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("error: getting secrets manager: constructing secrets manager: incorrect passphrase", WRONG),
        ("error: failed to decrypt: incorrect passphrase, please set PULUMI_CONFIG_PASSPHRASE to the correct", WRONG),
        (
            "error: passphrase must be set with PULUMI_CONFIG_PASSPHRASE or",
            "no passphrase: set PULUMI_CONFIG_PASSPHRASE",
        ),
        ("error: failed to load checkpoint: place 1: unexpected end of JSON input", "`cp /s/dev.json.bak /s/dev.json`"),
        ("error: malformed state value", "a secret in the state of stack 'dev' is damaged"),
        ('stderr: error: unable to open state directory "file:///nope"', "correct it, or make it with make init"),
        (
            "error: PULUMI_ACCESS_TOKEN must be set for login during non-interactive CLI",
            "write file:// before its path",
        ),
        ("error: the disk is full", "error: the disk is full"),
    ],
)
def test_an_error_of_the_cli_names_the_stack_and_the_remedy(said: str, told: str) -> None:
    """Its words are those of its source, 3.260."""

    def fail(**_: object) -> None:
        raise CommandError(CommandResult("", f"{said}\n", 255))

    workspace = SimpleNamespace(stack="dev", state_path="/s/dev.json")
    (failure,) = CliRunner(cast(Any, workspace), cast(Any, None), print)._run(fail, touches_hosts=False).failures
    assert told in failure.message


@pytest.mark.parametrize("whole", [True, False])
def test_an_export_gives_the_connection_of_a_step_even_if_it_is_secret(whole: bool) -> None:
    def secret(value: Any) -> dict[str, str]:
        return {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "plaintext": json.dumps(value)}

    way: dict[str, Any] = {"host": "192.0.2.1", "port": 22.0, "privateKey": "key"}
    way["proxy"] = {"host": "192.0.2.2", "privateKey": "other"}
    hidden = {**way, "privateKey": secret("key"), "proxy": {**way["proxy"], "privateKey": secret("other")}}
    exported = {"urn": "urn:x", "inputs": {"create": "true", "connection": secret(way) if whole else hidden}}
    assert made_of(exported).connection == way
    assert made_of({"urn": "urn:x", "inputs": {"create": "true"}}).connection == {}


@pytest.mark.parametrize("locked", [False, True])
def test_an_interrupt_before_the_first_step_is_reported_as_an_interrupt(workspace: Workspace, locked: bool) -> None:
    if locked:
        keep(workspace, "locks/organization/tailrack/dev/6e4c.json", {"pid": 2**30})

    def interrupted(*_: object) -> None:
        runner.stop()
        raise CommandError(CommandResult("", "", -2))

    runner = CliRunner(workspace, cast(Any, SimpleNamespace(run=interrupted)), print)
    with pytest.raises(CliError, match=r"^stopped before any step started: run the same command again$"):
        runner._clear_pending(cast(Any, SimpleNamespace(export_stack=interrupted)))
