"""Files that come from elsewhere by their checksum: whole and the one that was meant, or not there."""

import hashlib

import pytest

from components.node import files
from components.node.artifacts import Artifact, keep_artifact
from components.node.step.step import Step
from tests.unit.shell import Shell

TEXT = "a source\n"
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()
ADDRESS = "http://files.example/a.tar.gz"


def keep(machine: Shell, origin: str = ADDRESS, digest: str = DIGEST) -> str:
    """Keep a file as /var/lib/kept/a.tar.gz; return the failure, empty without one."""
    machine.path("/var/lib/kept").mkdir(parents=True, exist_ok=True)
    artifact = Artifact(digest, origin, "some:where", "some:sum")
    return machine.failure_of(keep_artifact, Step("a1", "a1-step"), "/var/lib/kept/a.tar.gz", artifact)


def answer(machine: Shell, text: str = TEXT) -> None:
    """Have the address answer with a text."""
    machine.write("/srv/answer", text)
    machine.stub("curl", 'while [ "$1" != -o ]; do shift; done; cat "' + str(machine.path("/srv/answer")) + '" >"$2"')


def kept(machine: Shell) -> list[str]:
    """The names in the folder of what is kept."""
    return sorted(path.name for path in machine.path("/var/lib/kept").iterdir())


def test_another_sum_is_refused_with_the_key_and_nothing_of_it_is_kept(shell: Shell) -> None:
    answer(shell, "half a so")
    found = hashlib.sha256(b"half a so").hexdigest()
    for names in ([], ["a.tar.gz"]):
        problem = keep(shell)
        assert f"a.tar.gz from {ADDRESS} has the checksum {found}, which is not the config's" in problem
        assert "before you change some:sum" in problem
        assert kept(shell) == names
        shell.write("/var/lib/kept/a.tar.gz", "another one\n")


def test_a_source_that_does_not_answer_is_named_with_the_key_for_another_one(shell: Shell) -> None:
    shell.stub("curl", "exit 6")
    problem = keep(shell)
    assert f"{ADDRESS} cannot be fetched from here" in problem
    assert "set some:where to a copy of your own" in problem
    assert kept(shell) == []


def test_a_full_disk_is_not_called_a_silent_source(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.stub("curl", 'while [ "$1" != -o ]; do shift; done; echo half >"$2"; exit 23')
    monkeypatch.setattr(files, "room_error", lambda folder: "No space left on device")
    problem = keep(shell)
    assert "var/lib/kept: No space left on device; make room there" in problem
    assert kept(shell) == []


def test_a_fetch_removes_the_files_of_an_interrupted_fetch(shell: Shell) -> None:
    answer(shell)
    shell.write("/var/lib/kept/.new", "half")
    assert keep(shell) == ""
    assert kept(shell) == ["a.tar.gz"]
