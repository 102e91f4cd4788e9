"""Keys with a passphrase, and keys in an agent, under both engines: as a host's own and as its bastion's."""

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.engine.conftest import Deploy
from tests.engine.ssh_agent import agent
from tests.engine.stack_under_test import Stack

PASSPHRASE = "nobody-may-see-this"


@pytest.fixture
def key_file(stack: Stack, tmp_path: Path) -> Path:
    """The key that opens the host."""
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_text(stack.host.private_key)
    return file


def write(stack: Stack, words: str, connection: str, config: dict[str, str]) -> None:
    stack.write(f'step("a", "echo {words}", connection=dict({connection}))', config)


@pytest.mark.parametrize("bastion", [False, True], ids=["direct", "bastion"])
def test_an_agent_opens_a_host_and_its_socket_is_in_no_state(
    deploy: Deploy, stack: Stack, key_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bastion: bool
) -> None:
    connection = "private_key=None"
    if bastion:
        way = "host=HOST['host'], port=HOST['port'], user='root', host_key=HOST['host_key'], dial_error_limit=1"
        connection += f", proxy=remote.ProxyConnectionArgs({way})"
    write(stack, "one", connection, {"any": "value"})
    with ExitStack() as agents:
        for name in ("first", "second"):
            agents.enter_context(agent(tmp_path / name, key_file))
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "first"))
        assert deploy("dev", []).up().ok
        assert [asked.stdin for asked in stack.host.take()] == ["echo one"]
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "second"))
        counts = deploy("dev", []).up().counts
        assert (counts["update"], counts["replace"], counts["create"]) == (0, 0, 0)
        write(stack, "two", connection, {"any": "value"})
        assert deploy("dev", []).up().ok
        assert [asked.stdin for asked in stack.host.take()] == ["echo two"]


def test_without_an_agent_it_fails(
    deploy: Deploy, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stale socket is none."""
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "gone"))
    stack.write(
        """remote.Command(
            "a", create=": a n1 'look at it'; true",
            connection=remote.ConnectionArgs(**{**HOST, "private_key": None, "dial_error_limit": 0}))
        """,
        {"any": "value"},
    )
    (failure,) = [one for one in deploy("dev", []).up().failures if one.urn]
    assert "ssh-add -l" in failure.message


def test_a_passphrase_opens_the_key_unseen(deploy: Deploy, stack: Stack, key_file: Path, tmp_path: Path) -> None:
    lock = ["ssh-keygen", "-q", "-p", "-a", "1", "-P", "", "-N", PASSPHRASE, "-f", str(key_file)]
    subprocess.run(lock, check=True)
    connection = f"private_key=open({str(key_file)!r}).read(), private_key_password={PASSPHRASE!r}"
    write(stack, "one", connection, {"any": "value"})
    assert deploy("dev", []).up().ok
    assert [asked.stdin for asked in stack.host.take()] == ["echo one"]
    state = [file for file in (tmp_path / "root").rglob("*.json*") if file.is_file()]
    assert state
    assert not any(PASSPHRASE.encode() in file.read_bytes() for file in state)
