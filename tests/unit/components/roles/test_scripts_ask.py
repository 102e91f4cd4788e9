"""The head node asks a node with a key that exists for this request alone, made by the real ssh-keygen."""

import shutil
import subprocess

import pytest

from components.roles.access.ssh_trust.ask import ask_all
from components.roles.role import template
from tests.unit.shell import Shell

STATE = "/var/lib/tailrack"


@pytest.fixture
def head(shell: Shell) -> Shell:
    """A head node with a member b1, whose answers are the words of the request and its stdin."""
    keygen = shutil.which("ssh-keygen")
    assert keygen
    shell.stub("ssh-keygen", f'exec {keygen} "$@"')
    shell.write(f"{STATE}/node-name", "head\n")
    words = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(shell.path(f"{STATE}/ssh_authority"))]
    subprocess.run(words, check=True)
    shell.write(f"{STATE}/members/b1/address", "100.64.0.7\n")
    shell.write(f"{STATE}/members/b1/sshd_port", "2222\n")
    shell.stub("ssh", f'{keygen} -L -f "$2-cert.pub" >{shell.root}/shown; echo "asked ${{@: -1}}"; cat; exit 3')
    return shell


def test_a_key_is_signed_for_ten_minutes_and_gone_afterwards(head: Shell) -> None:
    answer = head.call(ask_all, ["b1"], "munge-switch", "f" * 64, text="text")["b1"]
    assert (answer.status, answer.output) == (3, f"asked munge-switch {'f' * 64}\ntext")
    shown = head.path("/shown").read_text()
    assert "tailrack-ask" in shown.split("Principals:")[1]
    assert 'Key ID: "head"' in shown
    (asked,) = [call for call in head.calls if call.startswith("ssh ")]
    assert " -p 2222 " in asked
    assert "HostKeyAlias=b1 root@100.64.0.7 munge-switch" in asked
    assert any("-V -1h:+10m " in call for call in head.calls)
    assert not list(head.path("/run/tailrack-private").glob("ask*"))


def test_a_node_that_is_no_member_is_not_asked(head: Shell) -> None:
    answer = head.call(ask_all, ["c1"], "last-failure")["c1"]
    assert (answer.status, answer.output, answer.errors) == (255, "", "c1 is not a member of this cluster")
    assert head.command("ask", "c1", "last-failure").returncode == 255
    assert not any(call.startswith("ssh ") for call in head.calls)


def test_an_answer_without_end_is_refused_while_it_is_read(head: Shell) -> None:
    head.stub("ssh", "cat >/dev/null; head -c 3000000 /dev/zero | tr '\\0' x")
    answer = head.call(ask_all, ["b1"], "last-failure")["b1"]
    assert (answer.status, answer.output) == (255, "")
    assert answer.errors == "b1: its answer is longer than 1048576 bytes"


def test_without_a_key_no_node_answers(head: Shell) -> None:
    head.path(f"{STATE}/ssh_authority").unlink()
    answers = head.call(ask_all, ["b1", "b2"], "last-failure")
    assert [answer.status for answer in answers.values()] == [255, 255]


def test_other_words_are_refused(head: Shell) -> None:
    for words in ([], ["b1"], ["b1", "../x"], ["b1", "checks;id"], ["-oX", "checks"], ["b1", "munge-switch", "f" * 63]):
        assert head.command("ask", *words).returncode == 2, words
    assert head.command("ask", "b1", "munge-switch", "f" * 64).returncode != 2


def test_a_node_has_answers_to_requests_of_one_form(shell: Shell) -> None:
    for request_, status, output in (
        ("hello", 0, "hello \n"),
        (f"hello {'a' * 64}", 0, f"hello {'a' * 64}\n"),
        ("hello b", 255, ""),
        ("other", 255, ""),
        ("../hello", 255, ""),
        ("hello\nid", 255, ""),
        ("", 255, ""),
    ):
        shell.write(
            "/answer", shell.inside(template("ssh_trust", "tailrack-answer").replace("export PATH=", "ignored="))
        )
        answer = shell.write("/usr/local/lib/tailrack/answers/hello", '#!/bin/bash\necho "hello ${1:-}"\n')
        answer.chmod(0o755)
        done = subprocess.run(
            ["bash", str(shell.path("/answer"))],
            env={**shell.environment, "SSH_ORIGINAL_COMMAND": request_},
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stdout) == (status, output), done.stderr
