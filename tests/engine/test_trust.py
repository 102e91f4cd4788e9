"""`make trust` against real SSH servers: fingerprints are shown, and nothing is kept without a yes."""

import io
import subprocess
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from rich.console import Console

from cli.trust import trust
from stacks.sites.hosts.known_hosts import KnownHosts
from tests.engine.ssh_agent import agent
from tests.engine.ssh_host import SshHost, serve


class Terminal(Console):
    """A terminal at which somebody answers."""

    def __init__(self, answer: str) -> None:
        super().__init__(file=io.StringIO(), width=200)
        self._answer = answer

    def input(self, *asked: Any, **_: Any) -> str:
        self.print(*asked)
        return self._answer

    @property
    def shown(self) -> str:
        """All that was printed."""
        assert isinstance(self.file, io.StringIO)
        return self.file.getvalue()


def raw(*hosts: dict[str, Any], **site: Any) -> dict[str, Any]:
    return {"sites": [{"name": "rack", "kind": "hosts", "known_hosts_file": "known", "hosts": [*hosts], **site}]}


def n1(host: SshHost) -> dict[str, Any]:
    return {"name": "n1", "address": "127.0.0.1", "port": host.port}


def kept(folder: Path, port: int) -> str | None:
    return KnownHosts.load(folder, "known").key_of("127.0.0.1", port)


def fingerprint(host: SshHost) -> str:
    return asyncssh.import_public_key(host.host_key).get_fingerprint()


def test_a_yes_keeps_the_shown_keys_and_leaves_no_question(host: SshHost, tmp_path: Path) -> None:
    config = raw(n1(host))
    (tmp_path / "known").write_text("# ours")
    terminal = Terminal("yes")
    assert trust(config, tmp_path, terminal, interactive=True) == 0
    assert fingerprint(host) in terminal.shown
    assert kept(tmp_path, host.port) == " ".join(host.host_key.split()[:2])
    assert (tmp_path / "known").read_text().startswith("# ours\n[127.0.0.1]:")
    again = Terminal("yes")
    assert trust(config, tmp_path, again, interactive=True) == 0
    assert "Every host has a host key" in again.shown


@pytest.mark.parametrize(("answer", "interactive"), [("no", True), ("", True), ("yes", False)])
def test_only_an_interactive_yes_keeps_a_key(host: SshHost, tmp_path: Path, answer: str, interactive: bool) -> None:
    assert trust(raw(n1(host)), tmp_path, Terminal(answer), interactive) == 1
    assert not (tmp_path / "known").exists()


def test_a_machine_that_does_not_answer_is_named_and_the_others_are_kept(host: SshHost, tmp_path: Path) -> None:
    terminal = Terminal("yes")
    config = raw({"name": "gone", "address": "127.0.0.1", "port": 1}, n1(host))
    assert trust(config, tmp_path, terminal, interactive=True) == 1
    assert "gone" in terminal.shown
    assert kept(tmp_path, host.port)
    assert kept(tmp_path, 1) is None


def test_bastions_use_an_agent_or_passphrase(host: SshHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_text(host.private_key)
    bastion = {"address": "127.0.0.1", "port": host.port, "user": "root", "host_key": host.host_key}
    with serve(tmp_path) as inner, agent(tmp_path / "agent", key):
        lock = ["ssh-keygen", "-q", "-p", "-a", "1", "-P", "", "-N", "sesame", "-f", str(key)]
        subprocess.run(lock, check=True)
        locked = {"private_key_file": "key", "private_key_passphrase": "sesame"}
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
        for way in (locked, {"agent": True}):
            config = raw(n1(inner), bastion={**bastion, **way})
            assert trust(config, tmp_path, Terminal("yes"), interactive=True) == 0
            assert kept(tmp_path, inner.port) == " ".join(inner.host_key.split()[:2])
            (tmp_path / "known").unlink()
