"""The frame around every step: its answer, its log, its lock, and the report of a failure."""

import fcntl
import json
import os
import resource
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from components.node import safe_path
from components.node.failure import Failure
from components.node.step.main import report
from components.steps.composition import Script
from tests.unit.components.node.test_work import script
from tests.unit.shell import Shell, assert_ok, code_script

OK = 'step.result("ok", True)'
FAIL = "from components.node.failure import Failure\nraise Failure"


def run(shell: Shell, script: Script, action: str = "up", here: str = "") -> subprocess.CompletedProcess[str]:
    return shell.step(script, {}, action, "probe", here=here == "here")


def test_results_become_one_json_object(shell: Shell) -> None:
    code = """for name, value in {"cpus": 4, "name": '"x y"\\n', "ok": True, "text": "ü€"}.items():
    step.result(name, value)"""
    expected = {"cpus": 4, "name": '"x y"\n', "ok": True, "text": "ü€"}
    assert json.loads(run(shell, code_script(code)).stdout) == expected
    assert run(shell, code_script("pass")).stdout == "{}\n"


def test_a_step_that_fails_on_a_full_disk_names_the_full_folder(shell: Shell) -> None:
    # A process that may write no more than 4 KiB into a file is told so like one whose disk is full.
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        done = run(shell, code_script(f"{FAIL}('Slurm does not start', 'see its log')"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    first, *_, last = done.stderr.splitlines()
    assert first == "tailrack: a1: step probe failed: Slurm does not start; /var/log/tailrack: File too large"
    assert last == "next: make room in /var/log/tailrack on a1 (see 'df -h /var/log/tailrack'), then run up again"


LOG = """import sys
from components.node.log import note
print("chatter", file=sys.stderr)
note("step one")
print("trouble", file=sys.stderr)"""


def test_its_result_is_the_only_output_and_the_rest_is_logged(shell: Shell) -> None:
    done = run(shell, code_script(f"{LOG}\n{OK}"))
    assert (done.returncode, done.stdout, done.stderr) == (0, '{"ok":true}\n', "")
    log = (shell.root / "var/log/tailrack/probe.log").read_text()
    assert log.index("probe up on a1") < log.index("chatter") < log.index("step one") < log.index("done in")
    assert "trouble" in log


@pytest.fixture
def login_umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """The umask of the login that a step runs as, as sudo keeps it."""
    before = os.umask(request.param)
    yield
    os.umask(before)


@pytest.mark.parametrize("login_umask", [0o027, 0o077], indirect=True, ids=["027", "077"])
@pytest.mark.usefixtures("login_umask")
def test_modes_do_not_depend_on_the_logins_umask(shell: Shell) -> None:
    body = """import os
os.makedirs("/etc/a/b")
open("/etc/a/fetched", "w").close()
os.mkdir("/var/lib/shared")"""
    assert_ok(run(shell, code_script(body)))
    assert shell.step(script(("files", ("/etc/new/file", "0644", "root:root", "text", ""))), {}).returncode == 0
    wanted = {
        "etc/a": 0o755, "etc/a/b": 0o755, "etc/a/fetched": 0o644, "etc/new": 0o755, "etc/new/file": 0o644,
        "var/lib/shared": 0o755, "var/lib/tailrack": 0o755,
    }  # fmt: skip
    assert {path: stat.S_IMODE(shell.path(path).stat().st_mode) for path in wanted} == wanted


def test_folders_that_an_earlier_step_has_closed_to_users_are_opened_and_links_are_not_followed(shell: Shell) -> None:
    for folder in ("var/lib/tailrack", "usr/local/lib/tailrack", "elsewhere"):
        shell.path(folder).mkdir(parents=True, mode=0o700)
        shell.path(folder).chmod(0o750)
    shell.path("etc/tailrack").symlink_to(shell.path("elsewhere"))
    assert run(shell, code_script(OK)).returncode == 0
    modes = [stat.S_IMODE(shell.path(each).stat().st_mode) for each in ("var/lib/tailrack", "usr/local/lib/tailrack")]
    assert modes == [0o755, 0o755]
    assert stat.S_IMODE(shell.path("elsewhere").stat().st_mode) == 0o750


LINES = """import sys
for number in range(1, 31):
    print("line", number, file=sys.stderr)
from components.node.failure import Failure
raise Failure("")"""


def test_a_failure_names_host_step_log_end_and_next_action(shell: Shell) -> None:
    done = run(shell, code_script(LINES))
    assert done.returncode == 1
    *lines, last = done.stderr.splitlines()
    begin = ["tailrack: a1: step probe failed", "--- last lines of /var/log/tailrack/probe.log on a1"]
    assert lines == [*begin, *(f"line {number}" for number in range(16, 31)), "---"]
    assert last.startswith("next: ssh to a1, read ")
    assert done.stdout == ""


def test_a_step_reports_an_impossible_log_folder_without_a_log(shell: Shell) -> None:
    shell.write("var/log/tailrack", "a file in the way")
    done = run(shell, code_script("pass"))
    assert done.returncode == 1
    assert "tailrack: a1: step probe failed: /var/log/tailrack is a link or a file" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("next: ")
    assert "--- last lines" not in done.stderr


@pytest.mark.parametrize(("old", "new"), [("", " here"), (" here", "")], ids=["by SSH", "local"])
def test_an_old_step_does_not_undo_a_step_made_the_other_way(shell: Shell, old: str, new: str) -> None:
    add = "with open('/etc/done', 'a') as file: print('{}', file=file)"
    step = code_script(add.format("made"), add.format("undone"))
    for way in (f"up{old}", f"up{new}", f"down{old}"):
        done = assert_ok(run(shell, step, *way.split()))
    assert shell.path("/etc/done").read_text() == "made\nmade\n"
    assert done.stdout == "{}\n"
    assert run(shell, step, *f"down{new}".split()).returncode == 0
    assert shell.path("/etc/done").read_text() == "made\nmade\nundone\n"


@pytest.mark.parametrize("end", ["pass", "raise ValueError"], ids=["ends well", "fails"])
def test_work_for_the_end_of_a_step_is_done_even_after_a_failure(shell: Shell, end: str) -> None:
    leave = "step.at_end.append(lambda: print('ended', file=open('/etc/ended', 'a')))"
    later = "step.later.append(lambda: print('later', file=open('/etc/ended', 'a')))"
    run(shell, code_script(f"{leave}\n{later}\n{end}"))
    assert shell.path("/etc/ended").read_text().split() == (["later", "ended"] if end == "pass" else ["ended"])


def test_a_step_waits_for_the_one_before_it_and_names_the_lock_holder(shell: Shell) -> None:
    shell.hurry()
    path = shell.write("run/tailrack-private/tailrack.lock", "")
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = run(shell, code_script(OK))
    assert done.returncode == 1
    assert "another step has held /run/tailrack-private/tailrack.lock for 600s" in done.stderr
    assert done.stdout == ""
    assert run(shell, code_script(OK)).returncode == 0


@pytest.mark.parametrize(("lock", "nice"), [("tailrack", 0), ("", 0), ("tailrack-services", 5)])
def test_optional_steps_have_a_lower_priority_than_the_steps_of_nodes(shell: Shell, lock: str, nice: int) -> None:
    with mock.patch("os.setpriority") as lowered:
        done = shell.step(code_script(OK), {}, lock=lock)
    assert (done.returncode, done.stdout) == (0, '{"ok":true}\n'), done.stderr
    assert [call.args[2] for call in lowered.call_args_list] == ([nice] if nice else [])


PROJECT = Path(__file__).parents[4]
# A step on a machine whose disk of logs is full.
FULL_DISK = """
import io, os, sys
from components.node import files
from components.node.step import main

main.prepare_folders = lambda: None
files.open_to_write = lambda path, mode: os.open("/dev/full", os.O_WRONLY)
files.room_error = lambda folder: "No space left on device"
files.lines = lambda path: []
plan = b'{"calls": {"up": []}}'
request = b'{"name": "a1-prepare", "host": "a1", "lock": "", "repair": "", "values": {}}'
sys.exit(main.main(["up"], io.BytesIO(plan + b"\\n" + request)))
"""


def test_a_log_without_room_is_reported_without_a_log() -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    first, last = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]
    assert first == "tailrack: a1: step a1-prepare failed: /var/log/tailrack: No space left on device"
    assert last == "next: make room in /var/log/tailrack on a1 (see 'df -h /var/log/tailrack'), then run up again"


def test_a_folder_that_others_can_change_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_path, "root", str(tmp_path))
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc").chmod(0o777)
    first, last = report("a1", "a1-prepare", Failure("")).splitlines()
    assert first == "tailrack: a1: step a1-prepare failed: another account can change /etc"
    assert last == "next: give it to root: see 'ls -ld /etc', then run up again"
