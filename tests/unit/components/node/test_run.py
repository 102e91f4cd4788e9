"""Programs of root's that do not end."""

from __future__ import annotations

import subprocess
from unittest import mock

import pytest

from components.node import run


def test_a_program_that_takes_too_long_is_ended() -> None:
    assert run.attempt("sleep", "60", limit=0.1).status == 124


def test_a_program_that_the_kernel_cannot_end_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = mock.Mock(side_effect=subprocess.TimeoutExpired("nvidia-smi", 2))
    monkeypatch.setattr(subprocess.Popen, "wait", hangs)
    assert run.attempt("sleep", "60", limit=0.1).status == 124
    assert all(call.args[-1] == run._END_SECONDS for call in hangs.call_args_list)
