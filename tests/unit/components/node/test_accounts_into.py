"""Programs that run as another account, and whose output is too much for memory."""

from __future__ import annotations

import io
import time

import pytest

from components.node.accounts import as_user
from tests.unit.shell import Shell


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
    assert time.monotonic() - begin < 10
