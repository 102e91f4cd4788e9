"""Steps and programs in a folder that stands for a whole machine, with stubs in place of commands that need root."""

import contextlib
import grp
import json
import os
import pwd
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from components.node import accounts, files, locks, packages, passwd, run, safe_path, waiting
from components.node.commands import function_of
from components.node.failure import Failure
from components.node.step import main, work
from components.node.step import main as step_main
from components.node.step.main import report
from components.node.step.step import LOG_DIR, Step
from components.roles.network.names import names
from components.roles.order import roles
from components.roles.program import COMMANDS
from components.roles.role import Role, Value
from components.steps.composition import Script, compose
from stacks.config import parse
from tests.unit.configs import LAB

# Where the config names no release of Slurm and no server of the homes, and no port is held.
DISTRIBUTION = {"slurm_release": "", "firewall_holders": "", "firewall_head": "head", "users_homes": ""}

# Roles as the lab's config has them.
ROLES = roles(parse(LAB, base_dir=Path()))


def script_of(role: str, *phases: str, used: bool = True) -> Script:
    """Return the script of one role's phases alone. `used`: the config uses it, or does so no more."""
    found = [replace(one, only_where={}) if used else one for one in ROLES if one.name == role]
    return compose(found or [Role(role)], phases)


def code_script(up: str, down: str = "pass") -> Script:
    """Return a step whose `up` and `down` are Python (tests/unit/code_phases.py)."""
    calls = {name: (("python", "tests.unit.code_phases", name),) for name in ("up", "down")}
    return Script(calls, frozenset({"up", "down"}), {"up": up, "down": down})


# What the scripts may really run. Everything else is a stub of the test, or not found: nothing of this machine changes.
TOOLS = """
    awk base64 basename bash cat chmod cmp cp cut date df dirname env find flock grep head install jq ln ls md5sum mkdir
    mktemp mv nproc perl readlink rm sed setsid sh sha256sum sort stat tail tar tee timeout touch tr uname wc xargs
"""
_SYSTEM_PATH = re.compile(
    r"(?<![\w.})])/(?=(?:etc|var|run|root|usr/local|usr/sbin|proc|sys|sbin|dev(?!/null|/zero))\b)"
)
_STUB = r"""#!/bin/bash
# A stub of a test, not the real {name}.
printf '%s\n' "{name}${{*:+ $*}}" >>"{calls}"
{body}
"""


def role_header(name: str) -> dict[str, Value]:
    """Return the values that a role gives its scripts."""
    return next({**role.values, **role.texts} for role in ROLES if role.name == name)


Result = subprocess.CompletedProcess[str]


def assert_ok(done: Result) -> Result:
    """Return the result of a program or step after checking that it succeeded."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def assert_fails(done: Result, *texts: str) -> Result:
    """Return the result of a program or step after checking that it failed, with these texts in its error."""
    missing = [text for text in texts if text not in done.stderr]
    assert (done.returncode, missing) == (1, []), f"{done.returncode}: no {missing} in {done.stdout}{done.stderr}"
    return done


class HurriedTime:
    """A clock on which five seconds pass at once whenever somebody sleeps."""

    def __init__(self) -> None:
        self._slept = 0.0

    def sleep(self, seconds: float) -> None:
        self._slept += max(seconds, 5)

    def monotonic(self) -> float:
        return time.monotonic() + self._slept


class _Table:
    """The modules pwd and grp, for a machine that is a folder: its file /etc/passwd or /etc/group."""

    def __init__(self, path: Path, kind: str) -> None:
        self._path, self._kind = path, kind

    def _rows(self) -> list[Any]:
        text = self._path.read_text(encoding="utf-8") if self._path.exists() else ""
        fields = (line.split(":") for line in text.splitlines())
        if self._kind == "group":
            return [
                grp.struct_group((row[0], "x", int(row[2]), [name for name in "".join(row[3:4]).split(",") if name]))
                for row in fields
            ]
        return [
            pwd.struct_passwd((name, "x", int(uid), int(gid), "", home, shell))
            for name, _, uid, gid, _, home, shell in fields
        ]

    def _find(self, at: int, wanted: object) -> Any:
        for row in self._rows():
            if row[at] == wanted:
                return row
        raise KeyError(wanted)

    def getpwnam(self, name: str) -> Any:
        return self._find(0, name)

    def getpwuid(self, uid: int) -> Any:
        return self._find(2, uid)

    def getgrnam(self, name: str) -> Any:
        return self._find(0, name)

    def getgrgid(self, gid: int) -> Any:
        return self._find(2, gid)


@dataclass(frozen=True)
class Shell:
    """A machine that is a folder; `stub` adds commands, `calls` tells which of them ran.

    owners   the owner and group that a file or folder got from Python, by path
    """

    root: Path
    tools: Path
    owners: dict[str, tuple[str, str]] = field(default_factory=dict)

    def stub(self, name: str, body: str = "") -> None:
        """Put a command on PATH that notes its call and runs the body."""
        path = self.root / "stubs" / name
        path.write_text(_STUB.format(name=name, calls=self.root / "calls", body=body), encoding="utf-8")
        path.chmod(0o755)

    def stubs(self, *names: str) -> None:
        """Put commands on PATH that do nothing but note their calls."""
        for name in names:
            self.stub(name)

    def note(self, call: str) -> None:
        """Note a call of something that is no program."""
        with (self.root / "calls").open("a", encoding="utf-8") as file:
            file.write(f"{call}\n")

    @property
    def calls(self) -> list[str]:
        """Every call of a stub, with its arguments, in order."""
        path = self.root / "calls"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def path(self, system_path: str) -> Path:
        """Where a path of the machine lies in the folder."""
        return self.root / system_path.lstrip("/")

    def write(self, system_path: str, text: str) -> Path:
        """Write a file of the machine."""
        path = self.path(system_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def hurry(self) -> None:
        """Let a second pass at once whenever a script sleeps: what waits for its limit waits for nothing else."""
        self.write("hurry", "sleep() { SECONDS=$((SECONDS + 1)); }\n")

    def inside(self, script: str) -> str:
        """The script with the folder in front of every path of the machine."""
        return _SYSTEM_PATH.sub(f"{self.root}/", script)

    def run(self, script: str, *words: str) -> Result:
        """Run a script as a step is run: on stdin, with words such as `down` as its arguments; `up` without any."""
        hurry = self.path("hurry")
        first = hurry.read_text(encoding="utf-8") if hurry.exists() else ""
        return self._bash(["-euo", "pipefail", "-s", "--", *(words or ("up",))], first + script)

    def program(self, system_path: str, *arguments: str) -> Result:
        """Run a program that a script has installed on the machine."""
        return self._bash([str(self.path(system_path)), *arguments], "")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of everything that runs on the machine."""
        return {"PATH": f"{self.root / 'stubs'}:{self.tools}", "LANG": "C.UTF-8", "TMPDIR": str(self.root)}

    def _bash(self, arguments: list[str], text: str) -> Result:
        # From a file: bash reads a pipe one character at a time, and scripts are long.
        with tempfile.TemporaryFile("w+", encoding="utf-8") as script:
            script.write(self.inside(text))
            script.seek(0)
            return subprocess.run(
                ["bash", *arguments], stdin=script, env=self.environment, capture_output=True, text=True, timeout=60
            )

    @contextmanager
    def here(self) -> Iterator[None]:
        """Let functions of components.node find this machine instead of the real one."""
        clock = HurriedTime() if self.path("hurry").exists() else time
        write, make_folder = files._write, files.make_folder

        def recorded(place: Path, file: files.File) -> bool:
            self.owners[file.path] = (str(file.owner), str(file.group))
            return write(place, file)

        def recorded_folder(path: str, mode: int = 0o755, owner: str | int = "root", group: str | int = "") -> None:
            self.owners[path] = (str(owner), str(group or owner))
            make_folder(path, mode, owner, group)

        def started(words: Sequence[str], **how: Any) -> subprocess.Popen[Any]:
            return subprocess.Popen([self.inside(word) for word in words], **how)

        inside = SimpleNamespace(**{**vars(subprocess), "Popen": started})
        with contextlib.ExitStack() as patches:
            for target, name, new in (
                (run, "subprocess", inside),
                (accounts, "subprocess", inside),
                (safe_path, "root", str(self.root)),
                (files, "_uid", lambda owner: os.geteuid()),
                (files, "_gid", lambda group: os.getegid()),
                (files, "_write", recorded),
                (files, "make_folder", recorded_folder),
                (passwd, "pwd", _Table(self.path("/etc/passwd"), "passwd")),
                (passwd, "is_root", lambda: True),
                (passwd, "grp", _Table(self.path("/etc/group"), "group")),
                (run, "PATH", self.environment["PATH"]),
                (packages.Ahead, "names", ()),
                (packages, "_reading", []),
                (waiting, "time", clock),
                (locks, "time", clock),
                (names, "sethostname", lambda name: self.write("name", f"{name}\n")),
                (names, "interface_address", lambda: ""),
            ):
                patches.enter_context(mock.patch.object(target, name, new))
            patches.enter_context(mock.patch.dict(os.environ, self.environment, clear=True))
            yield

    def call(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function on the machine and return its result."""
        with self.here():
            return function(*arguments, **named)

    def failure_of(self, function: Callable[..., object], *arguments: Any, **named: Any) -> str:
        """Call a function on the machine; return the reason and the remedy of its failure, "" if it succeeds."""
        with self.here():
            try:
                function(*arguments, **named)
            except Failure as failure:
                return f"{failure.reason}; {failure.remedy}"
        return ""

    def step(
        self,
        script: Script,
        values: Mapping[str, Value],
        action: str = "up",
        name: str = "a1-step",
        *,
        repair: str = "",
        lock: str = "tailrack",
        here: bool = False,
        host: str = "a1",
    ) -> Result:
        """Run a step with what it reads of the values."""
        there = {**DISTRIBUTION, **values}
        read = json.loads(json.dumps({key: there[key] for key in script.reads}))
        plan = work.read_plan(script.file)
        plan = replace(plan, texts={key: self.inside(text) for key, text in plan.texts.items()})
        step = Step(host, name, repair)
        stdout, stderr, status = "", "", 0
        umask = os.umask(0o022)
        with self.here(), mock.patch.object(step_main, "Work", partial(_WorkInside, self)):
            try:
                step_main.prepare_folders()
                log = files.open_to_write(f"{LOG_DIR}/{name}.log", 0o644)
                with os.fdopen(log, "w", encoding="utf-8") as stream, contextlib.redirect_stderr(stream):
                    try:
                        step_main.perform(step, plan, read, lock, action, here=here)
                    except Exception as error:
                        if not isinstance(error, Failure):
                            traceback.print_exc()
                        raise
                stdout = json.dumps(step.results, ensure_ascii=False, separators=(",", ":")) + "\n"
            except Failure as failure:
                stderr, status = report(host, name, failure), 1
            except Exception:  # noqa: BLE001 as step_main.main does
                stderr, status = report(host, name, Failure("")), 1
            finally:
                step.release()
                os.umask(umask)
        return subprocess.CompletedProcess([], status, stdout, stderr)

    def kept(self, *words: str) -> Result:
        """Run a plan that lies on the machine, such as `leave`."""
        return self._call(words, lambda: main.run_kept(words))

    def command(
        self, command: str, *words: str, stdin: str = "", environment: Mapping[str, str] | None = None
    ) -> Result:
        """Run a command of the hosts' program on the machine."""
        function, umask = function_of(COMMANDS[command]), os.umask(0o022)

        def main() -> int:
            try:
                return function(list(words)) or 0
            except Exception:  # noqa: BLE001 as Python would end
                traceback.print_exc()
                return 1

        try:
            return self._call(words, main, stdin, environment)
        finally:
            os.umask(umask)

    def _call(
        self,
        words: Sequence[str],
        main: Callable[[], int],
        stdin: str = "",
        environment: Mapping[str, str] | None = None,
    ) -> Result:
        """Call a function on the machine; return its status and what it printed."""
        with (
            tempfile.TemporaryFile("w+", encoding="utf-8") as given,
            tempfile.TemporaryFile("w+", encoding="utf-8") as said,
            tempfile.TemporaryFile("w+", encoding="utf-8") as told,
        ):
            given.write(stdin)
            given.seek(0)
            with (
                self.here(),
                mock.patch.dict(os.environ, environment or {}),
                mock.patch.object(sys, "stdin", given),
                contextlib.redirect_stderr(said),
                contextlib.redirect_stdout(told),
            ):
                status = main()
            said.seek(0)
            told.seek(0)
            return subprocess.CompletedProcess(words, status, told.read(), said.read())


class _WorkInside(work.Work):
    """A step whose files name paths in the folder, so that programs find the machine there."""

    def __init__(self, machine: Shell, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._machine = machine

    def _call(self, call: work.Call) -> None:
        if call[0] == "files":
            call = ["files", *([*row[:3], self._machine.inside(row[3]), *row[4:]] for row in call[1:])]
        super()._call(call)


def stub_units(shell: Shell) -> None:
    """Let units be enabled, and active with process 77 once they were started."""
    active = f"{shell.root}/active-"
    shell.stub(
        "systemctl",
        f"""case $1 in
            is-enabled) echo enabled ;;
            show) case $* in *MainPID*) echo 77 ;; esac ;;
            is-active) [ -e "{active}$3" ] ;;
            start | restart) [ "$2" = --no-block ] || touch "{active}$2" ;;
        esac""",
    )


def stub_daemons(shell: Shell, *programs: str) -> Shell:
    """Let units be as stub_units has them and daemons answer, with stubs of programs; return the machine."""
    shell.path("/run/tailrack-private").mkdir(parents=True)
    stub_units(shell)
    shell.stubs("ss", "journalctl", *programs)
    return shell


def machine(folder: Path, tools: Path) -> Shell:
    """Return the shell of a machine that is an empty folder, with stubs for what would need root."""
    for name in ("stubs", "etc", "run/lock", "run/systemd/system"):
        (folder / name).mkdir(parents=True)
    made = Shell(folder, tools)
    made.stubs("chown", "systemctl")
    made.stub("id", "echo 0")
    made.stub("runuser", 'shift 3; exec "$@"')  # -u NAME --
    # Every package is installed.
    made.stub(
        "dpkg-query",
        'case $2 in *Package*) shift 2; for name; do echo "$name installed"; done ;; *) printf installed ;; esac',
    )
    return made
