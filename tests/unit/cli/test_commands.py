"""`make report` and `make floors` as commands: what they write, where, and what they refuse."""

import io
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
from cli.pulumi.workspace import PROJECT, make_passphrase, write_atomically
from cli.run_events import Event, Failure, Summary
from cli.stack_config.stack_file import read_stack_file
from cli.stack_config.written_config import WrittenConfig
from tests.unit.cli.conftest import Play

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
    monkeypatch.setattr("sys.stdin", io.StringIO("\n" + "tskey-auth-x\n" * 3))
    for stack, tailnet in (("one", "{}"), ("one", key), ("two", "{}"), ("two", key), ("two", key)):
        config = tmp_path / f"Pulumi.{stack}.yaml"
        words = ["--stack", stack, "--state-dir", str(tmp_path / "work"), "--config-file", str(config), "init"]
        assert commands.main(words) == (0 if before else 1), "the first time without a key"
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
        write_atomically(tmp_path / "config", str(number))
        return path.read_text()

    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(start, range(8)))) == 1
    assert {entry.name for entry in tmp_path.iterdir()} == {"passphrase", "config"}


def run(play: Play, place: Path, command: str, outputs: dict[str, Any]) -> int:
    play(outputs=lambda: outputs)
    words = ["--stack", "prod", "--state-dir", str(place), "--config-file", str(place / "Pulumi.prod.yaml"), command]
    return commands.main(words)


@pytest.fixture
def outputs() -> dict[str, Any]:
    cluster = {"name": "prod", "control_address": "100.64.0.1", "partitions": ["all"], "nodes": [NODE]}
    return {"cluster": cluster, "validation": {"rack": RACK}, "busbw_gb_per_s": 0.5}


def test_a_report_is_a_file_for_its_owner_alone_and_its_path_is_said(play, tmp_path, capsys, outputs):
    assert run(play, tmp_path, "report", outputs) == 0
    path = tmp_path / "report-prod.html"
    assert "0.50000 GB/s" in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize("verdict", ["UNJUDGED", "FAIL"])
def test_floors_of_a_sound_run_alone_are_written_into_the_config(play, tmp_path, capsys, outputs, verdict):
    config = tmp_path / "Pulumi.prod.yaml"
    before = "config:\n  tailrack:cluster: {name: prod} # ours\n"
    config.write_text(before)
    outputs["validation"]["rack"] = {**RACK, "verdict": verdict}
    status = run(play, tmp_path, "floors", outputs)
    told = capsys.readouterr().err
    if verdict == "FAIL":
        assert (status, config.read_text()) == (1, before)
        assert "no floors are written, because of rack: its verdict is FAIL" in told
        return
    section = read_stack_file(config)["config"]["tailrack:validation"]
    assert (status, section["floors_gb_per_s"]) == (0, {"rack": 0.45})
    assert section["floors_from"].startswith("measured floors of 20")
    assert "# ours" in config.read_text()
    assert "rack: 0.45" in told


STEP = Event("start", "create", "urn:pulumi:dev::tailrack::command:local:Command::a1-node", "a1-node")
STACK = Event("start", "create", "urn:pulumi:dev::tailrack::pulumi:pulumi:Stack::dev", "dev", "pulumi:pulumi:Stack")


@pytest.fixture
def run_command(play: Play, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run a command whose run sends an event and ends with failures; return its status and what it prints for people.

    interrupted   the run gets a signal as by Ctrl-C
    """

    def run(
        command: str, *failures: Failure, event: Event = STEP, interrupted: bool = False, **written: str
    ) -> tuple[int, str]:
        def end(*_: object, **__: object) -> Summary:
            if interrupted:
                os.kill(os.getpid(), signal.SIGINT)
            return Summary(failures=[*failures])

        values = {f"tailrack:{key}": value for key, value in written.items()}
        play([event], end, written=WrittenConfig(values))
        status = commands.main(["--stack", "prod", "--state-dir", str(tmp_path), command])
        return status, " ".join(capsys.readouterr().err.split())

    return run


@pytest.mark.parametrize(
    ("command", "event", "said"),
    [
        ("up", STACK, "No step was started."),
        ("up", STEP, "The next run continues with the unfinished steps."),
        ("down", STEP, "The next run continues with the unfinished steps."),
        ("preview", STEP, "No step was started."),
    ],
)
def test_a_failed_command_says_whether_anything_ran(run_command: Any, command: str, event: Event, said: str) -> None:
    status, told = run_command(command, Failure("", "users is missing"), event=event)
    assert status == 1
    assert f"{said} Fix the problem above and run the same command again." in told
    assert "users is missing" in told


@pytest.mark.parametrize("command", ["up", "down"])
@pytest.mark.parametrize("failed", [False, True])
def test_a_clean_interrupt_asks_for_no_repair(run_command: Any, command: str, failed: bool) -> None:
    step = [Failure(STEP.urn, "no room")] if failed else []
    stopped = Failure("", "stopped; what had finished is saved")
    status, told = run_command(command, *step, stopped, interrupted=True)
    assert (status, "Fix the problem above" in told, "no room" in told) == (1, failed, failed)
    assert ("Stopped. Run the same command again to continue." in told) != failed
    assert "what had finished is saved" not in told


@pytest.mark.parametrize("cluster", ["lab", ""])
def test_a_pool_that_has_left_names_the_rotation_of_its_clusters_key(run_command: Any, cluster: str) -> None:
    status, told = run_command("down", kind="pool", cluster=cluster)
    expected = "change tailrack:cluster.munge_generation and run make up STACK=lab."
    assert (status, expected in told) == (0, bool(cluster))


def test_make_refuses_an_unknown_variable_and_lists_every_target() -> None:
    def make(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["make", "-n", *words], cwd=PROJECT, capture_output=True, text=True, check=False)

    assert "write STACK=prod." in make("preview", "stack=prod").stderr
    assert make("preview", "STACK=prod").returncode == 0
    printed = subprocess.check_output(["make", "-s", "help"], cwd=PROJECT, text=True).splitlines()
    targets = {line.split()[0] for line in printed}
    described = re.findall(r"^([a-z-]+):.*## ", (PROJECT / "Makefile").read_text(), re.MULTILINE)
    assert targets == {*described}
