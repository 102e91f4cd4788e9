"""The driver of a step, as a process: what reaches the operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from components.node import files
from components.node.failure import Failure
from components.node.step.report import report

PROJECT = Path(__file__).parents[4]
# A step on a machine whose disk of logs is full.
FULL_DISK = """
import io, os, sys
from components.node import files
from components.node.step import main

main.prepare_folders = lambda: None
files.open_to_write = lambda path, mode: os.open("/dev/full", os.O_WRONLY)
files.room_error = lambda folder: "No space left on device"
files.lines = lambda path: []
plan = b'{"calls": {"up": []}}'
request = b'{"name": "a1-check", "host": "a1", "lock": "", "repair": "", "values": {}}'
sys.exit(main.main(["up"], io.BytesIO(plan + b"\\n" + request)))
"""


def test_a_log_without_room_is_reported_without_a_log() -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    first, last = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    assert first == "tailrack: a1: step a1-check failed: /var/log/tailrack: No space left on device"
    assert last == "next: make room in /var/log/tailrack on a1 (see 'df -h /var/log/tailrack'), then run up again"


def test_a_folder_that_others_can_change_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "root", str(tmp_path))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc").chmod(0o777)
    first, last = report("a1", "a1-check", Failure("")).splitlines()
    assert first == "tailrack: a1: step a1-check failed: another account can change /etc"
    assert last == "next: give it to root: see 'ls -ld /etc', then run up again"
