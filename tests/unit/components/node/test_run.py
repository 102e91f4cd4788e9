"""Programs of root's that do not end, and those of an account whose output is too much for memory."""

import io
import subprocess
import time
from unittest import mock

import pytest

from components.node import run
from components.node.accounts import as_user
from components.node.run import attempt_bounded
from tests.unit.shell import Shell


def test_a_program_that_takes_too_long_is_ended_or_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.attempt("sleep", "60", limit=0.1).status == 124
    # As one that the kernel cannot end.
    hangs = mock.Mock(side_effect=subprocess.TimeoutExpired("nvidia-smi", 2))
    monkeypatch.setattr(subprocess.Popen, "wait", hangs)
    assert run.attempt("sleep", "60", limit=0.1).status == 124
    assert all(call.args[-1] == run._END_SECONDS for call in hangs.call_args_list)


def test_the_start_and_the_end_of_any_amount_of_output_are_kept() -> None:
    prints = "echo start; yes | head -c 5000000; echo reason >&2; exit 4"
    ended = attempt_bounded("bash", "-c", prints, limit=60, most=9)
    assert (ended.status, ended.output, ended.errors[-7:], len(ended.errors)) == (4, "start\ny\ny", "reason\n", 65536)
    # One without an end is ended at its limit.
    ended = attempt_bounded("bash", "-c", "yes & exec yes no >&2", limit=0.5, merged=False)
    assert (ended.status, ended.output, ended.errors[-3:]) == (124, "", "no\n")


class Full(io.BytesIO):
    """A file on a full disk."""

    def write(self, data: object) -> int:
        raise OSError("No space left on device")


def test_output_goes_into_a_file_up_to_a_number_of_bytes(shell: Shell) -> None:
    file = io.BytesIO()
    with shell.here():
        ended = as_user("ada", "bash", "-c", "echo 12345; echo 6789; echo no >&2", limit=10, most=8, into=file)
    assert (ended.status, ended.output, ended.errors) == (0, "", "no\n")
    assert file.getvalue() == b"12345\n67"


def test_a_file_that_cannot_be_written_ends_the_program(shell: Shell) -> None:
    begin = time.monotonic()
    with shell.here(), pytest.raises(OSError, match="No space left"):
        as_user("ada", "bash", "-c", "echo 1; exec tail -f /dev/null", limit=60, into=Full())
    assert time.monotonic() - begin < 40
