"""`make report` and `make floors` as commands: what they write, where, and what they refuse."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from types import SimpleNamespace
from typing import Any

import pytest

from cli import commands, open_stack
from cli.output.make_command import Make
from cli.pulumi.workspace import PROJECT, make_passphrase, write_private
from cli.run_events import Event, Failure, Summary
from cli.stack_config.stack_file import read_stack_file
from cli.stack_config.written_config import WrittenConfig

NODE = {
    "name": "head", "site": "rack", "tailnet_ip": "100.64.0.1", "path": "self", "cpus": 2, "memory_mb": 1024, "gpus": 0,
    "slurm_version": "24.11.5", "tailscale_version": "1.102.5",
}  # fmt: skip
RACK = {
    "backend": "mpi-cpu", "verdict": "UNJUDGED", "reason": "Measured.", "busbw_gb_per_s": 0.5, "gate_bytes": 4194304,
    "floor_gb_per_s": None, "wrong": 0, "ranks": 2, "nodes": ["head", "a"], "transport": "TCP", "interface": "eth0",
    "rows": [], "left_out": [],
}  # fmt: skip


def test_init_creates_missing_files_and_overwrites_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = list[list[str]]()

    def pulumi(words: list[str], **_: Any) -> SimpleNamespace:
        asked.append(words[1:3])
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(open_stack, "find_engine", lambda _: SimpleNamespace(why="", cli=SimpleNamespace(command="p")))
    monkeypatch.setattr("cli.init.subprocess", SimpleNamespace(run=pulumi))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path}/states")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", str(passphrase := tmp_path / "passphrase"))
    before = ""
    key = "{auth_key: {secure: x}}"
    for stack, tailnet in (("one", key), ("two", "{}"), ("two", key), ("two", key)):
        config = tmp_path / f"Pulumi.{stack}.yaml"
        words = ["--stack", stack, "--state-dir", str(tmp_path / "work"), "--config-file", str(config), "init"]
        assert commands.main(words) == 0
        before = before or passphrase.read_text()
        assert passphrase.read_text() == before
        assert WrittenConfig(read_stack_file(config)["config"]).mappings("tailrack:sites")
        kept = config.read_text().partition("  tailrack:tailnet:")[0]
        config.write_text(f"{kept}  tailrack:tailnet: {tailnet}\n")
    assert passphrase.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "states").stat().st_mode & 0o777 == 0o700
    assert asked == [["stack", "select"], ["config", "set"]] * 3 + [["stack", "select"]]


def test_commands_that_start_at_the_same_moment_keep_one_passphrase(tmp_path: Path) -> None:
    path, together = tmp_path / "passphrase", Barrier(8)

    def start(number: int) -> str:
        together.wait()
        make_passphrase(path)
        write_private(tmp_path / "config", str(number))
        return path.read_text()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(start, range(8)))) == 1
    assert {entry.name for entry in tmp_path.iterdir()} == {"passphrase", "config"}


def run(monkeypatch: pytest.MonkeyPatch, place: Path, command: str, outputs: dict[str, Any]) -> int:
    monkeypatch.setattr(open_stack, "open_deployment", lambda *_: SimpleNamespace(outputs=lambda: outputs))
    monkeypatch.setattr(open_stack, "find_engine", lambda _: None)
    words = ["--stack", "prod", "--state-dir", str(place), "--config-file", str(place / "Pulumi.prod.yaml"), command]
    return commands.main(words)


@pytest.fixture
def outputs() -> dict[str, Any]:
    cluster = {"name": "prod", "control_address": "100.64.0.1", "partitions": ["all"], "nodes": [NODE]}
    return {"cluster": cluster, "validation": {"rack": RACK}, "busbw_gb_per_s": 0.5}


def test_a_report_is_a_file_for_its_owner_alone_and_its_path_is_said(monkeypatch, tmp_path, capsys, outputs):
    assert run(monkeypatch, tmp_path, "report", outputs) == 0
    path = tmp_path / "report-prod.html"
    assert "0.50000 GB/s" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert str(path) in capsys.readouterr().err


def test_floors_are_written_into_the_stacks_config_and_said(monkeypatch, tmp_path, capsys, outputs):
    config = tmp_path / "Pulumi.prod.yaml"
    config.write_text("config:\n  tailrack:cluster: {name: prod} # ours\n")
    assert run(monkeypatch, tmp_path, "floors", outputs) == 0
    section = read_stack_file(config)["config"]["tailrack:validation"]
    assert section["floors_gb_per_s"] == {"rack": 0.45}
    assert section["floors_from"].startswith("measured floors of 20")
    assert "# ours" in config.read_text()
    assert "rack: 0.45" in capsys.readouterr().err


def test_a_run_that_was_not_sound_leaves_the_config_as_it_was(monkeypatch, tmp_path, capsys, outputs):
    config = tmp_path / "Pulumi.prod.yaml"
    config.write_text("config:\n  tailrack:cluster: {name: prod}\n")
    outputs["validation"]["rack"] = {**RACK, "verdict": "FAIL"}
    assert run(monkeypatch, tmp_path, "floors", outputs) == 1
    assert "no floors are written, because of rack: its verdict is FAIL" in capsys.readouterr().err
    assert config.read_text() == "config:\n  tailrack:cluster: {name: prod}\n"


STEP = Event("start", "create", "urn:pulumi:dev::tailrack::command:local:Command::a1-node", "a1-node")
STACK = Event("start", "create", "urn:pulumi:dev::tailrack::pulumi:pulumi:Stack::dev", "dev", "pulumi:pulumi:Stack")


@pytest.mark.parametrize(
    ("command", "event", "said"),
    [
        ("up", STACK, "No step was started."),
        ("up", STEP, "The next run continues with the unfinished steps."),
        ("down", STEP, "The next run continues with the unfinished steps."),
        ("preview", STEP, "No step was started."),
    ],
)
def test_after_a_failure_it_is_said_whether_anything_is_done(monkeypatch, tmp_path, capsys, command, event, said):
    def deployment(_arguments, progress, *_):
        def run(*_: object, **__: object) -> Summary:
            progress.on_event(event)
            return Summary(failures=[Failure("", "users is missing")])

        words = {"written": WrittenConfig({}), "in_process": True, "stop": lambda: None}
        words |= {"pools": list, "made": list}
        return SimpleNamespace(**words, up=run, destroy=run, preview=run)

    monkeypatch.setattr(open_stack, "open_deployment", deployment)
    monkeypatch.setattr(open_stack, "find_engine", lambda _: SimpleNamespace(why=""))
    assert commands.main(["--stack", "prod", "--state-dir", str(tmp_path), command]) == 1
    told = capsys.readouterr().err
    assert f"{said} Fix the problem above and run the same command again." in " ".join(told.split())
    assert "users is missing" in told


@pytest.mark.parametrize("command", ["up", "down"])
@pytest.mark.parametrize("failed", [False, True])
def test_a_clean_interrupt_asks_for_no_repair(monkeypatch, tmp_path, capsys, command, failed):
    def deployment(_arguments, progress, *_):
        def run(*_: object, **__: object) -> Summary:
            progress.on_event(STEP)
            os.kill(os.getpid(), signal.SIGINT)
            step = [Failure(STEP.urn, "no room")] if failed else []
            return Summary(failures=[*step, Failure("", "stopped; what had finished is saved")])

        words = {"written": WrittenConfig({}), "in_process": True, "stop": lambda: None}
        words |= {"pools": list, "made": list}
        return SimpleNamespace(**words, up=run, destroy=run)

    monkeypatch.setattr(open_stack, "open_deployment", deployment)
    monkeypatch.setattr(open_stack, "find_engine", lambda _: SimpleNamespace(why=""))
    assert commands.main(["--stack", "prod", "--state-dir", str(tmp_path), command]) == 1
    told = capsys.readouterr().err
    assert ("Fix the problem above" in told) == failed
    assert ("no room" in told) == failed
    assert ("Stopped. Run the same command again to continue." in told) != failed
    assert "what had finished is saved" not in told


@pytest.mark.parametrize(("cluster", "said"), [("lab", True), ("", False)])
def test_when_a_pool_has_left_it_is_said_how_the_cluster_gets_a_key_that_its_machines_never_had(
    monkeypatch, tmp_path, capsys, cluster, said
):
    written = WrittenConfig({"tailrack:kind": "pool", "tailrack:cluster": cluster})
    words = {"written": written, "in_process": True, "stop": lambda: None, "pools": list}
    made = SimpleNamespace(**words, destroy=lambda _: Summary(), make=Make("burst"))
    monkeypatch.setattr(open_stack, "open_deployment", lambda *_: made)
    monkeypatch.setattr(open_stack, "find_engine", lambda _: SimpleNamespace(why=""))
    assert commands.main(["--stack", "burst", "--state-dir", str(tmp_path), "down"]) == 0
    told = "change tailrack:cluster.munge_generation and run make up STACK=lab."
    assert (told in " ".join(capsys.readouterr().err.split())) is said


def test_make_refuses_an_unknown_variable_and_lists_every_target() -> None:
    def make(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["make", "-n", *words], cwd=PROJECT, capture_output=True, text=True, check=False)

    assert "write STACK=prod." in make("preview", "stack=prod").stderr
    assert make("preview", "STACK=prod").returncode == 0
    targets = {
        line.split()[0] for line in subprocess.check_output(["make", "-s", "help"], cwd=PROJECT, text=True).splitlines()
    }
    described = re.findall(r"^([a-z-]+):.*## ", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    assert targets == {*described}
