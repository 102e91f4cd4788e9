"""as_user for scripts: what root runs as somebody else gets three streams and nothing else, and holds nobody up."""

import fcntl
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from components.steps.command_line import render_request
from tests.unit.shell import code_script

PROJECT = Path(__file__).parents[4]
COMPONENTS = PROJECT / "components"
USER = "daemon"  # who is on every Debian, and owns nothing
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="another user's program is started by root")


def run(tmp_path: Path, commands: str, seconds: float = 30) -> subprocess.CompletedProcess[str]:
    """Run commands with the function at hand, in a shell that has descriptors and a lock open."""
    opened = f"exec 3>&1 4>&2 9>'{tmp_path}/lock'; flock 9"
    # The last resort waits 1 s instead of 5.
    program = "import sys; import components.node.accounts as a; a._END_SECONDS = 1; sys.exit(a.main(sys.argv[1:]))"
    function = f'as_user() {{ {sys.executable} -c "{program}" "$@"; }}'
    text = "\n".join([function, opened, commands, ""])
    words = ["bash", "-euo", "pipefail", "-s"]
    return subprocess.run(words, input=text, cwd=PROJECT, capture_output=True, text=True, timeout=seconds)


@as_root
def test_a_users_program_has_three_streams_and_nothing_else_that_is_open(tmp_path: Path) -> None:
    lists = "cd /proc/$$/fd; for one in *; do readlink $one; done"
    shown = run(tmp_path, f"as_user {USER} 10 9999 bash -c '{lists}' </dev/null")
    stdin, stdout, stderr = shown.stdout.splitlines()  # what bash listed the folder by is closed again
    assert stdin == "/dev/null"
    assert stdout.startswith("pipe:")
    assert stderr.startswith("pipe:")


@as_root
def test_a_program_that_would_hold_the_step_for_ever_ends_by_the_clock(tmp_path: Path) -> None:
    programs = {
        "ignores the signal to end": "trap '' TERM; tail -f /dev/null",
        "is stopped": "kill -STOP $$",
        "leaves a child that has its streams": "trap '' TERM; setsid timeout 60 tail -f /dev/null & echo said",
    }

    def outcome(name: str) -> bool:
        folder, words = tmp_path / name, programs[name].replace("'", "'\\''")
        folder.mkdir()
        done = run(folder, f"as_user {USER} 1 999 bash -c '{words}' </dev/null || echo stopped", seconds=20)
        # Whatever it has left behind, the lock of the step is free.
        with (folder / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return done.stdout.endswith("said\n" if "child" in name else "stopped\n")

    with ThreadPoolExecutor() as threads:
        assert dict(zip(programs, threads.map(outcome, programs), strict=True)) == dict.fromkeys(programs, True)


@as_root
def test_a_leftover_process_neither_blocks_nor_writes_the_answer_of_a_step(tmp_path: Path) -> None:
    """The step answers itself: no program that it starts has its stdout."""
    started = """import os, subprocess
process = subprocess.Popen(["tail", "-f", "/dev/null"])
folder = f"/proc/{process.pid}/fd"
"""
    script = code_script(
        f"{started}print(*(os.readlink(f'{{folder}}/{{name}}') for name in os.listdir(folder)), "
        f"file=open({str(tmp_path / 'open')!r}, 'w'))\nstep.result('pid', process.pid)"
    )
    whole = f"{script.file}\n{render_request('probe', 'a1', 'tailrack', '', {})}"
    imports = "import sys; from components.node import safe_path; from components.node.step.main import main"
    words = [sys.executable, "-c", f"{imports}; safe_path.root = {str(tmp_path)!r}; sys.exit(main(['up']))"]
    done = subprocess.run(words, input=whole, cwd=PROJECT, capture_output=True, text=True, timeout=60)
    pid = re.fullmatch(r'\{"pid": (\d+)\}\n', done.stdout)
    assert pid, done.stderr
    os.kill(int(pid[1]), 9)
    # The program may still be reading its libraries.
    paths = re.sub(r"(?:/usr/lib|/lib|/etc)\S+", "", (tmp_path / "open").read_text()).split()
    assert set(paths) <= {"/dev/null", f"{tmp_path}/var/log/tailrack/probe.log"}
    assert (tmp_path / "run/tailrack-private").stat().st_mode & 0o777 == 0o700


def scripts() -> list[Path]:
    """All that runs on machines."""
    return [path for path in COMPONENTS.rglob("*") if path.is_file() and path.suffix != ".pyc"]


def test_nothing_runs_as_another_user_but_by_that_one_function() -> None:
    others = re.compile(r"\b(runuser|setpriv|su|sudo|chroot|start-stop-daemon)\s+-|\bsetuid\(|\bsetreuid\(|user=\"")
    found = {
        str(path.relative_to(COMPONENTS))
        for path in scripts()
        for line in path.read_text(encoding="utf-8").splitlines()
        if others.search(line) and not line.lstrip().startswith("#")
    }
    # The second is how a step's login becomes root. What builds Slurm does as as_user does, in a root and namespaces of
    # its own besides, which end with it: the account is one that nobody else is.
    # slurmctld's unit drops to slurm for a program of root's, with none of root's descriptors.
    assert found == {
        "steps/start.sh",
        "steps/command_line.py",
        "roles/slurm/slurm_release/build.py",
        "roles/slurm/slurm/templates/slurmctld.service.conf",
    }
    build = (COMPONENTS / "roles/slurm/slurm_release/build.py").read_text(encoding="utf-8")
    assert '("--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child")' in build
    assert re.search(r"attempt_logged\(\s+.*\s+log=self\._log,\s+limit=_LIMIT,\s+most=_MOST_LOG,", build)


def test_only_root_can_open_a_lock_and_each_wait_has_a_limit() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in scripts())
    waits = re.findall(r"^\s*flock\b.*$", text, re.MULTILINE)
    files = re.findall(r"^\s*exec \d+[<>]\"?([^&\s]\S*?)\"?$", text, re.MULTILINE)
    assert waits
    assert [line for line in waits if not {"-w", "-n"} & {*line.split()}] == []
    assert files
    assert [file for file in files if not file.startswith("/run/tailrack-private/")] == []
