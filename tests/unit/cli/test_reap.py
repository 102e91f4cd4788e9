"""`make reap`: what it asks, what it takes away, and that nothing else is ever a leave to do so."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cli import change_commands, commands, open_stack
from cli.money import amounts
from cli.money.amounts import decide
from cli.output.make_command import Make
from cli.pulumi.deployment import Deployment
from cli.pulumi.workspace import CliError
from cli.run_events import Made
from components.roles.commands.tailrack.idle import Use
from stacks.config import PoolConfig, parse
from tests.unit.configs import RawConfig
from tests.unit.stacks.test_pool import POOL as POOL_OF_NODES

POOL: RawConfig = {**POOL_OF_NODES, "idle_limit_minutes": 30}
OUTPUTS = {"cluster": {"head": "head", "nodes": [{"name": "c1"}, {"name": "$(reboot)"}]}}
MADE = (Made("urn:pulumi:burst::tailrack::tailrack:cluster:Pool$tailrack:cluster:ComputeNode::c2"),)


def pool(raw: RawConfig = POOL, outputs: Any = OUTPUTS, made: Any = MADE) -> Deployment:
    """A fake of a pool's deployment, whose config is real."""
    config = parse(raw, PoolConfig, base_dir=Path())
    words: dict[str, Any] = {"outputs": lambda: outputs, "made": lambda: list(made), "make": Make("burst")}
    return cast(Deployment, SimpleNamespace(config=lambda: config, **words))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands that a fake of the head node was given; it says that nobody uses the nodes."""
    found: list[str] = []

    def ask(_deployment: Any, _made: Any, head: str, command: str) -> str:
        assert head == "head"
        found.append(command)
        return json.dumps({"unused": True, "why": "all 2 nodes have been idle for 31 min or more, longer than 30"})

    monkeypatch.setattr(amounts, "ask_head", ask)
    return found


def test_it_asks_for_all_nodes_of_the_pool_with_its_limit_and_as_root(asked: list[str]) -> None:
    decision = decide(pool())
    assert decision == Use(True, "all 2 nodes have been idle for 31 min or more, longer than 30")
    (command,) = asked
    assert command.count("idle --json --take-out --minutes 30 c1 c2") == 3
    assert "reboot" not in command


def test_a_cluster_and_a_pool_without_a_limit_are_kept_unasked(asked: list[str], lab_config: RawConfig) -> None:
    raw = {key: value for key, value in POOL.items() if key != "idle_limit_minutes"}
    assert decide(pool(raw)) == Use(False, "its config has no idle_limit_minutes")
    assert decide(pool(outputs={}, made=())) == Use(False, "it has no resources")
    cluster = parse(lab_config, base_dir=Path())
    decision = decide(cast(Deployment, SimpleNamespace(config=lambda: cluster)))
    assert (decision.unused, "only pools" in decision.why) == (False, True)
    with pytest.raises(CliError, match="did not finish"):
        decide(pool(outputs={}))
    assert asked == []


@pytest.mark.parametrize("said", ["", "unused", "{}", '{"unused": 1, "why": ""}', "[]", '{"unused": true}', "null"])
def test_words_of_a_head_node_that_are_none_take_nothing_away(monkeypatch: pytest.MonkeyPatch, said: str) -> None:
    monkeypatch.setattr(amounts, "ask_head", lambda *_: said)
    with pytest.raises(CliError, match="did not report whether the pool is in use"):
        decide(pool())


def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, decision: Use, down: Any) -> int:
    monkeypatch.setattr(open_stack, "open_deployment", lambda *_: SimpleNamespace(make=Make("burst")))
    monkeypatch.setattr(open_stack, "find_engine", lambda _: None)
    monkeypatch.setattr(change_commands, "decide", lambda _: decision)
    monkeypatch.setattr(change_commands, "down", down)
    return commands.main(["--stack", "burst", "--state-dir", str(tmp_path), "reap"])


def test_a_pool_that_is_kept_is_a_sentence_and_no_failure(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    assert command(monkeypatch, tmp_path, Use(False, "c1 has jobs"), pytest.fail) == 0
    assert capsys.readouterr().err == "Keeping stack burst: c1 has jobs.\n"


def test_an_unused_pool_is_removed_as_by_make_down(monkeypatch: Any, tmp_path: Path, capsys: Any) -> None:
    gone: list[bool] = []

    def down(arguments: Any, _: Any) -> int:
        gone.append(arguments.cluster_gone)
        return 0

    status = command(monkeypatch, tmp_path, Use(True, "idle"), down)
    assert (status, gone) == (0, [False])
    assert capsys.readouterr().err == "Destroying stack burst: idle.\n"


@pytest.mark.parametrize("raises", [False, True])
def test_a_failed_removal_reports_drained_nodes(monkeypatch: Any, tmp_path: Path, capsys: Any, raises: bool) -> None:
    def down(*_: Any) -> int:
        if raises:
            raise CliError("the state is locked")
        return 1

    assert command(monkeypatch, tmp_path, Use(True, "idle"), down) == 1
    assert "The pool's nodes are drained and take no jobs. Run make reap STACK=burst again" in capsys.readouterr().err
