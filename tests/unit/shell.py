"""Bash in a folder that stands for a whole machine, with stubs in the place of commands that would need root."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from components.roles.order import roles
from components.roles.role import Value
from components.steps.command_line import render_script
from components.steps.composition import Functions, Script, compose
from components.steps.header import header
from stacks.config import parse
from tests.unit.configs import LAB

# Where the config names no release of Slurm, and no port is held.
DISTRIBUTION = {"SLURM_RELEASE": "", "FIREWALL_HOLDERS": "", "FIREWALL_HEAD": "head"}

# Roles as the lab's config has them.
ROLES = roles(parse(LAB, base_dir=Path()))


def script_of(role: str, *phases: str) -> Script:
    """Return the script of one role's phases alone."""
    return compose([one for one in ROLES if one.name == role], phases)


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


@dataclass(frozen=True)
class Shell:
    """Bash in a folder that stands for the whole machine; `stub` adds commands, `calls` tells which of them ran."""

    root: Path
    tools: Path

    def stub(self, name: str, body: str = "") -> None:
        """Put a command on PATH that notes its call and runs the body."""
        path = self.root / "stubs" / name
        path.write_text(_STUB.format(name=name, calls=self.root / "calls", body=body), encoding="utf-8")
        path.chmod(0o755)

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

    def run(self, script: str, *words: str) -> subprocess.CompletedProcess[str]:
        """Run a script as a step is run: on stdin, with words such as `down` as its arguments; `up` without any."""
        hurry = self.path("hurry")
        first = hurry.read_text(encoding="utf-8") if hurry.exists() else ""
        return self._bash(["-euo", "pipefail", "-s", "--", *(words or ("up",))], first + script)

    def program(self, system_path: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a program that a script has installed on the machine."""
        return self._bash([str(self.path(system_path)), *arguments], "")

    def _bash(self, arguments: list[str], text: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": f"{self.root / 'stubs'}:{self.tools}", "LANG": "C.UTF-8", "TMPDIR": str(self.root)}
        # From a file: bash reads a pipe one character at a time, and scripts are long.
        with tempfile.TemporaryFile("w+", encoding="utf-8") as script:
            script.write(self.inside(text))
            script.seek(0)
            return subprocess.run(
                ["bash", *arguments], stdin=script, env=environment, capture_output=True, text=True, timeout=60
            )

    def step(
        self, script: Script, values: Mapping[str, Value], action: str = "up", name: str = "a1-step"
    ) -> subprocess.CompletedProcess[str]:
        """Run a step's script with what it reads of the values in its header."""
        own = {"HOST_NAME": "a1", "STEP_NAME": name, "STEP_LOCK": "tailrack", "STEP_REPAIR": "", **DISTRIBUTION}
        there = {**own, **values}
        return self.run(render_script(script, {key: there[key] for key in script.reads | own.keys()}), action)

    def call(self, commands: str, values: Mapping[str, Value], *files: str) -> subprocess.CompletedProcess[str]:
        """Run commands with the functions of roles' files (`users/head`) at hand, and with the values in the header."""
        own = {
            "HOST_NAME": "a1",
            "STEP_NAME": "a1-step",
            "STEP_LOCK": "",
            "STEP_REPAIR": "",
            "LOCKED": "",
            **DISTRIBUTION,
        }
        return self.run("\n".join([header({**own, **values}), Functions(files).text, commands, ""]))


def machine(folder: Path, tools: Path) -> Shell:
    """Return the shell of a machine that is an empty folder, with stubs for what would need root."""
    for name in ("stubs", "etc", "run/lock", "run/systemd/system"):
        (folder / name).mkdir(parents=True)
    made = Shell(folder, tools)
    for name in ("chown", "systemctl"):
        made.stub(name)
    made.stub("id", "echo 0")
    made.stub("runuser", 'shift 3; exec "$@"')  # -u NAME --
    made.stub("dpkg-query", "printf installed")
    return made
