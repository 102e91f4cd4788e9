"""Scripts that lie on a machine: what a step reads there, and what becomes of one that is not whole."""

import hashlib
import io
import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from cli.run_events import command_of
from components.host import Connection, Machine
from components.node import install
from components.node.step import main as step_main
from components.roles.program import Program, program
from components.steps import command_line, delivery
from components.steps.command_line import NO_ANSWER, START, START_TEXT, command, render_request, whole_command
from components.steps.composition import Script
from components.steps.delivery import deliver
from components.steps.label import StepLabel
from tests.unit.configs import RawConfig
from tests.unit.recorded import Build, Parent, Recorded, record

SCRIPTS_FOLDER = Machine("a1", None).scripts_folder
SAYS = Script({"up": (), "down": (), "recall": ()}, frozenset({"WORD"}))
# Not the real program: it answers with its arguments and what comes on stdin; it fails if a value is `fail`.
_PRINTS = """import json, sys
plan, request = sys.stdin.read().split("\\n", 1)
word = json.loads(request)["values"]["WORD"]
print(json.dumps([*sys.argv[1:], word, "calls" in json.loads(plan)]).join(['{"said": ', "}"]))
sys.exit(7 * (word == "fail"))
"""


def prints(folder: Path) -> Program:
    """An archive that is installed in a folder."""
    there = (Path(install.__file__).read_text(encoding="utf-8")).replace(install.FOLDER, str(folder))
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("components/node/install.py", there)
        archive.writestr("__main__.py", _PRINTS)
    return Program(buffer.getvalue())


@dataclass(frozen=True)
class Login:
    """The home of a login that brought a step's files."""

    home: Path
    program: Program

    @property
    def folder(self) -> Path:
        return self.home / SCRIPTS_FOLDER

    def run(
        self, action: str = "up", word: str = "it's", sent: str | None = None, password: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run the command of a step."""
        line = command(SAYS, self.program, SCRIPTS_FOLDER, action, password=bool(password))
        request = render_request("a1-step", "a1", "", "", {"WORD": word}) if sent is None else sent
        request = f"{password}\n{request}" if password else request
        return subprocess.run(["sh", "-c", line], input=request, cwd=self.home, capture_output=True, text=True)


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    """A login whose steps' program is installed in a folder of the test."""
    login = Login(tmp_path, prints(tmp_path / "program"))
    login.folder.mkdir(parents=True)
    # The shim of a version manager takes ten times as long.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    start = START_TEXT.replace(install.FOLDER, str(tmp_path / "program"))
    monkeypatch.setattr(command_line, "START_DIGEST", hashlib.sha256(start.encode()).hexdigest())
    (login.folder / START).write_text(start, encoding="utf-8")
    (login.folder / "plans-1").write_text(f"{SAYS.digest} {SAYS.file}\n", encoding="utf-8")
    (login.folder / login.program.digest).write_bytes(login.program.compressed)
    return login


@pytest.fixture
def python3(login: Login, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that puts a script in the place of the machine's python3, or of another program."""

    def put(script: str, name: str = "python3") -> None:
        path = login.home / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", f"{path.parent}:{os.environ['PATH']}")

    return put


@pytest.mark.parametrize("action", ["up", "down", "recall"])
def test_the_program_gets_the_plan_the_values_and_the_action(login: Login, action: str) -> None:
    for _ in range(2):
        done = login.run(action)
        assert (done.stderr, done.returncode) == ("", 0)
        assert json.loads(done.stdout) == {"said": ["step", action, "it's", True]}


def test_the_program_is_installed_once_and_whole(login: Login) -> None:
    assert login.run().returncode == 0
    (folder,) = (login.home / "program").iterdir()
    assert folder.name == login.program.digest
    assert {"__main__.py", "components"} <= {path.name for path in folder.iterdir()}
    (login.folder / login.program.digest).unlink()
    assert login.run().returncode == 0, "it is in place already"


@pytest.mark.parametrize("kept", [(), ("complete",)], ids=["all files are empty", "the mark is on the disk"])
def test_a_program_with_files_emptied_by_a_power_cut_is_installed_again(login: Login, kept: tuple[str, ...]) -> None:
    assert login.run().returncode == 0
    files = [path for path in (login.home / "program").rglob("*") if path.is_file()]
    assert len(files) > 2
    for path in files:
        if path.name not in kept:
            path.write_bytes(b"")
    done = login.run()
    if kept:
        # install.py writes the mark last, so this cannot happen; if it does, the step fails.
        assert (done.returncode, done.stdout) == (NO_ANSWER, "")
    else:
        assert (done.returncode, json.loads(done.stdout)["said"][0]) == (0, "step")
        assert [path.name for path in (login.home / "program").iterdir()] == [login.program.digest]


@pytest.mark.parametrize("text", ["hello", "", '{"a": 1}'], ids=["a line more", "nothing", "a second object"])
@pytest.mark.parametrize("whole", [False, True])
def test_steps_that_print_other_text_fail(login: Login, python3: Callable[[str], None], text: str, whole: bool) -> None:
    assert login.run().returncode == 0
    output = f"echo '{text}'; echo '{{}}'" if text else ":"
    python3(f"cat >/dev/null\n{output}")
    if whole:
        request = render_request("a1-step", "a1", "", "", {"WORD": "x"})
        line, sent = whole_command("root", "up"), command_line.render_whole(login.program, SAYS, request)
        done = subprocess.run(["sh", "-c", line], input=sent, cwd=login.home, capture_output=True, text=True)
    else:
        done = login.run()
    assert (done.returncode, done.stdout) == (NO_ANSWER, "")
    assert "its answer is not one JSON object" in done.stderr


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ("kill -9 $$", "for lack of memory"),
        ("kill -11 $$", "ended with status 139"),
        ("exit 127", "python3 or sudo ended with status 127, or cannot be run there"),
    ],
)
@pytest.mark.parametrize("whole", [False, True])
def test_a_step_that_ends_before_it_can_report_has_a_reason_and_a_next_command(
    login: Login, python3: Callable[[str], None], ends: str, words: str, whole: bool
) -> None:
    assert login.run().returncode == 0
    python3(f"cat >/dev/null\n{ends}")
    local = ["sh", "-c", whole_command("root", "up")]
    done = subprocess.run(local, capture_output=True, text=True) if whole else login.run()
    assert (done.stdout, done.returncode > 100) == ("", True)
    assert words in done.stderr
    assert done.stderr.splitlines()[-1].startswith("next: ")


def test_a_program_that_cannot_be_installed_names_the_folder_the_error_and_the_next_command(login: Login) -> None:
    (login.home / "program").write_text("a file where the folder belongs")
    done = login.run()
    assert (done.stdout, done.returncode) == ("", 1)
    first, remedy = done.stderr.splitlines()
    assert first == f"tailrack: cannot install the program in {login.home}/program: File exists"
    assert remedy.startswith("next: ")


@pytest.mark.parametrize("needs_password", [True, False])
def test_sudo_gets_its_password_on_stdin_and_the_step_the_rest(
    login: Login, python3: Callable[..., None], needs_password: bool
) -> None:
    python3("echo 1000", "id")
    asks = """[ "$1 $2" = "-kS -p" ] || exit 1; read -r line; [ "$line" = 'p w\\' ] || exit 1; shift 3; exec "$@\""""
    python3(
        f'printf "%s\\n" "$1" >>{login.home}/ways; echo "$*" >>{login.home}/argv\n'
        + (asks if needs_password else 'shift; exec "$@"'),
        "sudo",
    )
    done = login.run(password="p w\\")
    assert (done.stderr, json.loads(done.stdout)["said"]) == ("", ["step", "up", "it's", True])
    assert {*(login.home / "ways").read_text().split()[1:]} == {"-kS" if needs_password else "-n"}
    assert "p w" not in (login.home / "argv").read_text()
    if needs_password:
        done = login.run(password="another")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.startswith("tailrack: sudo does not accept the password of this login\nnext: correct sudo_")


def test_an_old_python_is_named_before_anything_is_installed(login: Login, python3: Callable[[str], None]) -> None:
    # It has the arguments `-I -S -c CODE VERSION`.
    python3(f"""exec {sys.executable} "$1" "$2" "$3" "import sys; sys.version_info = (3, 9, 2)\n$4" "$5\"""")
    done = login.run()
    assert done.returncode == 1
    assert done.stderr.startswith("tailrack: this machine has Python 3.9, and tailrack needs 3.10 or newer\nnext: use ")
    assert not (login.home / "program").exists()


def test_a_request_or_plan_that_is_cut_off_on_its_way_does_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    whole = f"{SAYS.file}\n{render_request('a1-step', 'a1', '', '', {'LINES': ['one', 'two']})}"
    for length in range(len(whole)):
        with mock.patch.object(step_main, "perform", side_effect=AssertionError("it began")):
            assert step_main.main(["up"], io.BytesIO(whole[:length].encode())) == step_main.NO_REQUEST
    assert capfd.readouterr().out == ""


def test_a_file_that_is_not_whole_or_missing_or_another_does_not_run_and_is_named(login: Login) -> None:
    for file, name in ((START, START), ("plans-1", SAYS.digest), (login.program.digest, login.program.digest)):
        path = login.folder / file
        before = path.read_bytes()
        for text in (b"", before[:10], before[:-2], before.replace(before[90:95], b"#"), None):
            if text is None:
                path.unlink()
            else:
                path.write_bytes(text)
            done = login.run()
            assert (done.stdout, done.returncode) == ("", command_line.NO_SCRIPT)
            assert done.stderr.splitlines()[-1].endswith(f"{SCRIPTS_FOLDER}/{name}: not there, or not whole")
        path.write_bytes(before)
    assert login.run().returncode == 0


def delivered(repair: str = "", **changed: Any) -> Recorded:
    how: dict[str, Any] = {"host": "192.0.2.1", "port": 22, "user": "ops", "private_key": "k"}
    machine = Machine("a1", Connection(**{**how, "host_key": "ssh-ed25519 A", **changed}))

    def program() -> dict[str, int]:
        waits = deliver("a1-scripts", machine, [SAYS], label="a1: scripts", parent=Parent(), repair=repair)
        return {"waits": len(waits)}

    return record(program)


@pytest.mark.parametrize(
    ("change", "anew"),
    [
        ({"host": "192.0.2.2"}, True), ({"port": 23}, True), ({"host_key": "ssh-ed25519 B"}, True),
        ({"repair": "new disk"}, True), ({"private_key": "l"}, False), ({"user": "root"}, True),
    ],
)  # fmt: skip
def test_another_machine_or_home_or_a_request_copies_the_scripts_again(change: dict[str, Any], anew: bool) -> None:
    before, after = delivered(), delivered(**change)
    assert (before["a1-scripts"].inputs["triggers"] != after["a1-scripts"].inputs["triggers"]) == anew


def test_a_preview_of_machines_not_yet_there_has_the_label_of_every_step(build: Build, lab_config: RawConfig) -> None:
    stack = build(lab_config, unknown=True)
    steps = [*stack.remote, *stack.copies]
    assert len(steps) > 10
    assert [step.name for step in steps if StepLabel.of(command_of(step.inputs)) is None] == []


def test_a_delivery_rewrites_files_that_arrive_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "FOLDER", tmp_path)
    delivery.folder_of.cache_clear()
    folder = delivery.folder_of((SAYS,), "scripts")
    whole = {path: path.read_bytes() for path in folder.iterdir()}
    assert len(whole) == 3
    for path in whole:
        path.write_bytes(b"half")
    delivery.folder_of.cache_clear()
    assert {path: path.read_bytes() for path in delivery.folder_of((SAYS,), "scripts").iterdir()} == whole


@pytest.mark.parametrize("config", ["lab_config", "hosts_config"])
def test_every_remote_step_finds_its_script_there(build: Build, request: pytest.FixtureRequest, config: str) -> None:
    stack = build(request.getfixturevalue(config))
    assert len(stack.remote) > 10
    for step in stack.remote:
        assert "up" in json.loads(stack.plan_text(step.name))["calls"], step.name


def test_a_step_sends_only_its_values(build: Build, lab_config: RawConfig) -> None:
    """The CLI writes the whole state twice a step: with the scripts in it, 64 hosts took 250 s and 9 GB."""
    stack = build(lab_config)
    sizes = {step.name: len(json.dumps(step.inputs)) for step in stack.remote if step.name.startswith("a1-")}
    assert len(sizes) == 3
    assert sum(sizes.values()) < 8_600, sizes


def test_the_login_reads_its_files_and_root_reads_only_its_pipe() -> None:
    lines = START_TEXT.splitlines()
    as_root = [line for line in lines if "as_root " in line and "apt-get" not in line and "as_root true" not in line]
    assert len(as_root) == 2
    assert "sudo -n" in START_TEXT
    # The shell of the login opens the file; root's Python gets it as its stdin, or what `cat` of the login writes.
    assert 'cat "$1" 2>/dev/null | as_root' in START_TEXT
    assert """{ printf '%s\\n' "$plan" && cat; } | as_root""" in START_TEXT
    assert "sudo" not in command(SAYS, program(), "/home/admin/.tailrack", "up")
