"""The program that runs on hosts, as an archive: components/node, and the modules of roles that it imports."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from components.node.install import FOLDER as INSTALLED
from components.node.pack import packed

_ROLES = Path(__file__).parent

# The commands of the program: the module whose `main` takes the arguments.
COMMANDS = {
    "kept": "components.node.step.kept",
    "step": "components.node.step.main",
}
# `step` starts this module, which unpacks the program of a step that brings it.
_INSTALL = "components.node.install"
# Files that modules read.
_DATA = ("components/validation/floors.csv",)


@dataclass(frozen=True)
class Program:
    """A zip archive, and its name.

    archive   the bytes of the archive, the same wherever it is made
    """

    archive: bytes

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the archive, in hexadecimal. It is also the name of its folder on a machine."""
        return hashlib.sha256(self.archive).hexdigest()


@cache
def program() -> Program:
    """Return the whole program."""
    return Program(packed(COMMANDS, (_INSTALL, *_phases()), _DATA))


@cache
def step_program() -> Program:
    """Return a program that has only steps in bash."""
    return Program(packed({"step": COMMANDS["step"]}, (_INSTALL,)))


def command_line(*words: str) -> str:
    """Return the command line of one of its commands on a machine."""
    return " ".join(["/usr/bin/python3 -I -S", f"{INSTALLED}/{program().digest}", *words])


def launcher(*words: str) -> str:
    """Return the text of a file that runs one of its commands with the file's arguments."""
    return f'#!/bin/sh\nexec {command_line(*words)} "$@"'


def _phases() -> Iterator[str]:
    """Yield the modules that have phases of roles: those that import the step."""
    for path in sorted(_ROLES.glob("*/*.py")):
        if "from components.node.step.step import" in path.read_text(encoding="utf-8"):
            yield f"components.roles.{path.parent.name}.{path.stem}"
