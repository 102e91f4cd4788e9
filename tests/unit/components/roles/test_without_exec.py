"""The program that slurmdbd is started by, so that it can run no other program. The kernel of this machine decides."""

import subprocess
import sys
from pathlib import Path

import pytest

from components.roles.slurm.accounting.role import role
from components.roles.slurm.accounting.without_exec import seccomp_filter
from stacks.config import parse
from tests.unit.configs import LAB

PROGRAM = "/usr/local/lib/tailrack/without-exec"
# Ways to run a program, in a process that does nothing else.
WAYS = {
    "execve": "os.execv(sys.argv[1], ['other'])",
    "execveat": "f = os.open(sys.argv[1], os.O_RDONLY); os.set_inheritable(f, True); os.execve(f, ['other'], {})",
    "posix_spawn": "os.posix_spawn(sys.argv[1], ['other'], {})",
    "a thread": "threading.Thread(target=lambda: os.execv(sys.argv[1], ['other'])).start()",
    "a child": "os.fork() or os.execv(sys.argv[1], ['other']); os.wait()",
}


@pytest.fixture
def program(tmp_path: Path) -> str:
    """The program as it comes to the head node."""
    made = role(parse(LAB, base_dir=Path()))
    (text,) = [file.text for file in made.files["services"] if file.path == PROGRAM]
    path = tmp_path / "without-exec"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A program that leaves a file `ran` beside it."""
    path = tmp_path / "other"
    path.write_text(f"#!/bin/sh\n: >{tmp_path}/ran\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("way", WAYS)
def test_a_program_that_is_started_by_it_runs_and_can_run_no_other_one(program: str, other: Path, way: str) -> None:
    attempt = [sys.executable, "-c", f"import os, sys, threading\nprint('runs', flush=True)\n{WAYS[way]}", str(other)]
    # Without it nothing prevents that.
    subprocess.run(attempt, capture_output=True, timeout=60)
    assert (other.parent / "ran").exists()
    (other.parent / "ran").unlink()
    done = subprocess.run([sys.executable, "-I", program, *attempt], capture_output=True, text=True, timeout=60)
    assert done.stdout == "runs\n"
    assert "Operation not permitted" in done.stderr
    assert not (other.parent / "ran").exists()


def test_it_hands_on_words_environment_and_exit_status(program: str) -> None:
    words = ["/bin/sh", "-c", 'printf "%s|" "$0" "$@" "$GREETING"; exit 7', "a b", "", "ü"]
    done = subprocess.run(
        [sys.executable, "-I", program, *words],
        env={"GREETING": "good day"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (7, "a b||ü|good day|")


def test_the_filter_rejects_an_architecture_with_unknown_syscall_numbers() -> None:
    with pytest.raises(KeyError):
        seccomp_filter("riscv64", 0)
