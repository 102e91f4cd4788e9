"""`sll`: what viewers see."""

import json
import os
import pty
import select
import subprocess
import sys
import termios
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from components.roles.commands.sll import sll
from components.roles.commands.sll import snapshot as sll_snapshot
from components.roles.commands.sll.sll import page, table, totals
from components.roles.commands.sll.snapshot import Snapshot, snapshot
from components.roles.monitoring.usage.samples import Summary
from components.slurm_commands.jobs import Job, with_parts
from components.slurm_commands.nodes import Node, read_nodes
from components.slurm_commands.slurm import SlurmError

NOW = 1_790_000_000
RUNS = Job(
    7, "train", "ada", 6001, ("RUNNING",), nodes="a[1-2]", node_count=2, start=NOW - 3723, resources="cpu=4,gres/gpu=16"
)
WAITS = Job(8, "eval", "bob", 6002, ("PENDING",), reason="Resources", node_count=1, resources="cpu=1")
NODES = [
    Node("a1", frozenset({"ALLOCATED"}), gpus="h200:8"),
    Node("a2", frozenset({"ALLOCATED"}), gpus="h200:8, a100:4"),
    Node("b1", frozenset({"IDLE", "DRAIN"}), "new disk", "root"),
]
SITES = {"a1": "cloud-a", "a2": "cloud-a", "b1": "cloud-b"}


def seen(*jobs: Job) -> Snapshot:
    return snapshot(jobs, NODES, SITES, NOW)


def test_a_running_job_shows_its_place_and_a_waiting_one_its_reason() -> None:
    heading, first, second = table(seen(WAITS, RUNS)["jobs"], NOW)
    assert heading.split()[:7] == ["JOB", "USER", "NODES", "GPUS", "ELAPSED", "STATE", "SITE"]
    assert first.split() == ["7", "ada", "a[1-2]", "16", "1:02:03", "running", "cloud-a", "train"]
    assert second.split()[:5] == ["8", "bob", "1", "0", "pending"]
    assert second.endswith("eval: waits for 1 node with cpu=1 in total, and is next")
    assert totals(seen(WAITS, RUNS), NOW) == ["1 running, 1 waiting; 3 nodes, 1 out (b1); 16 of 20 GPUs in use"]


def test_sll_shows_gpu_figures_if_the_terminal_is_wide_enough() -> None:
    comment = with_parts("", use=Summary(True, 16, 16.54, 35, 20, 70.1, {"USD": 41.35}))
    rows = seen(replace(RUNS, admin_comment=comment), WAITS)["jobs"]
    whole = table(rows, NOW)
    for text in (
        "GPU USE  IDLE  GPU MEM   GPU HOURS  COST       ELAPSED",
        "35 %     20 %  70.1 GiB  16.54      41.35 USD",
    ):
        assert any(text in line for line in whole), text
    assert table(rows, NOW, 200) == whole
    narrow = table(rows, NOW, 80)
    assert narrow[0].split()[:8] == ["JOB", "USER", "NODES", "GPUS", "GPU", "USE", "ELAPSED", "STATE"]
    # The most useful ones stay longest.
    assert "COST" in table(rows, NOW, 110)[0]
    assert "GPU MEM" not in table(rows, NOW, 110)[0]


def test_control_characters_of_users_cannot_reach_a_terminal() -> None:
    escapes = (
        "\x1b[2J\x1b]0;owned\x07",
        "a\nb\rc",
        "\x9b31m",
        "\u202eevil",
        "\x1b[6n",
        "\ud800",
        "\x00",
        "x" * 100_000,
    )
    for name in escapes:
        hostile = Job(7, name, name, 6001, ("PENDING",), reason=name, nodes=name, features=name, resources=name)
        found = seen(hostile)
        for line in [*page(found, NOW, 40), *table(found["jobs"], NOW)]:
            assert line.isprintable(), ascii(name[:20])
            assert len(line) < 700, ascii(name[:20])
        found["error"] = name
        assert all(line.isprintable() for line in page(found, NOW, 40)), ascii(name[:20])


def test_a_nodes_site_is_among_its_features() -> None:
    forms: list[Any] = [["gpu-h200", "site-cloud-a"], None, [], ["gpu-h200"]]
    nodes = [{"name": "a1", "state": ["IDLE"], "features": features} for features in forms]
    assert [node.site for node in read_nodes(json.dumps({"nodes": nodes}))] == ["cloud-a", "", "", ""]


def test_a_page_fits_the_screen_and_names_the_hidden_rows() -> None:
    many = seen(*(Job(number, "x", "ada", 6001, ("PENDING",), reason="Priority") for number in range(1, 101)))
    for height in (5, 10, 24, 50):
        assert len(page(many, NOW, height)) == height
    lines = page(many, NOW, 24, first=10)
    assert lines[3].startswith("11 ")
    assert lines[-1] == "q quits, j and k move; 10 more above, 70 more below"
    assert "more" not in page(many, NOW, 200)[-1]


# The command.


def test_without_a_terminal_it_prints_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sll, "query", lambda now: {**seen(RUNS, WAITS), "time": now})
    assert sll.main([]) == 0
    assert capsys.readouterr().out.startswith("1 running, 1 waiting; 3 nodes, 1 out (b1)")
    assert sll.main(["--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(job["job"], job["sites"], job["elapsed"] > 3722) for job in told["jobs"]] == [
        ("7", ["cloud-a"], True),
        ("8", [], False),
    ]


def test_slurm_is_asked_once_and_another_form_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def scontrol(*words: str) -> str:
        asked.append(words)
        return '{"jobs": [], "nodes": []}'

    monkeypatch.setattr(sll_snapshot, "scontrol", scontrol)
    assert sll_snapshot.query(NOW)["jobs"] == []
    assert asked == [("show", "jobs", "--json"), ("show", "nodes", "--json")]
    monkeypatch.setattr(sll_snapshot, "scontrol", lambda *_: "<html>")
    with pytest.raises(SlurmError, match="does not print jobs or nodes as JSON"):
        sll_snapshot.query(NOW)


def test_on_a_terminal_an_error_stays_beside_the_last_view_and_q_ends_it(tmp_path: Path) -> None:
    (tmp_path / "seen").write_text(json.dumps({**seen(RUNS, WAITS), "time": time.time()}))
    program = f"""
import json, sys
from components.roles.commands.sll import sll
from components.slurm_commands.slurm import SlurmError
answers = [json.load(open({str(tmp_path / "seen")!r}))]
def query(now):
    if not answers:
        raise SlurmError("slurmctld is gone")
    return answers.pop()
sll.query, sll.EVERY_SECONDS, sll.TURN_SECONDS = query, 0.1, 0.1
sys.exit(sll.main([]))
"""
    ours, theirs = pty.openpty()
    before = termios_of(theirs)
    with subprocess.Popen([sys.executable, "-c", program], stdin=theirs, stdout=theirs, stderr=theirs) as one:
        assert b"train" in until(ours, b"q quits")
        assert b"train" in until(ours, b"old: slurmctld is gone") + until(ours, b"q quits")
        os.write(ours, b"q")
        assert one.wait(30) == 0
    assert until(ours, b"\x1b[?1049l")
    assert termios_of(theirs) == before


def termios_of(terminal: int) -> list[Any]:
    return termios.tcgetattr(terminal)


def until(terminal: int, word: bytes) -> bytes:
    """What a terminal shows until there is this word."""
    shown, end = b"", time.monotonic() + 60
    while word not in shown:
        assert time.monotonic() < end, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65536)
    return shown
