"""Fixtures of the engine's tests: a host, and a stack on it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.ssh_host import SshHost, serve
from tests.engine.stack_under_test import Stack

PASSPHRASE = "open-sesame-for-the-tests"

needs_cli = pytest.mark.skipif(
    not (shutil.which("pulumi") and shutil.which("pulumi-resource-command")),
    reason="NOT COMPARED WITH PULUMI: there is no pulumi CLI with its command provider on PATH",
)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SshHost]:
    """A host that keeps what it is asked."""
    folder = tmp_path / "host"
    folder.mkdir()
    with serve(folder) as served:
        yield served


@pytest.fixture
def stack(tmp_path: Path, host: SshHost, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """An empty stack, its passphrase in a file."""
    secret = tmp_path / "passphrase"
    secret.write_text(PASSPHRASE)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE_FILE", str(secret))
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE", raising=False)
    # Programs here are rewritten within a second; a stale cache of one would be the wrong program.
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    return Stack(tmp_path / "project", host)
