"""The program that runs on hosts, as an archive: components/node, and the modules of roles that it imports."""

from __future__ import annotations

import ast
import hashlib
import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from components.node.install import FOLDER as INSTALLED

_PROJECT = Path(__file__).parents[2]
_ROLES = Path(__file__).parent

# The commands of the program: the module whose `main` takes the arguments.
COMMANDS = {
    "kept": "components.node.step.kept",
    "step": "components.node.step.main",
}
# Files that modules read with pkgutil.get_data.
_DATA = ("components/validation/floors.csv",)
_START = "import sys\nfrom components.node.commands import main\nsys.exit(main(sys.argv[1:]))\n"


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
    return _packed([*COMMANDS.values(), *_phases()], COMMANDS)


@cache
def step_program() -> Program:
    """Return a program that has only steps in bash."""
    return _packed([COMMANDS["step"]], {"step": COMMANDS["step"]})


def command_line(*words: str) -> str:
    """Return the command line of one of its commands on a machine."""
    return " ".join(["/usr/bin/python3 -I -S", f"{INSTALLED}/{program().digest}", *words])


def launcher(*words: str) -> str:
    """Return the text of a file that runs one of its commands with the file's arguments."""
    return f'#!/bin/sh\nexec {command_line(*words)} "$@"'


def _packed(modules: Sequence[str], commands: Mapping[str, str]) -> Program:
    texts = dict(files_of(tuple(modules)))
    texts["__main__.py"] = _START
    texts["components/commands.json"] = json.dumps(commands, sort_keys=True)
    for path in _DATA:
        if any(name.startswith("components/validation/") for name in texts):
            texts[path] = (_PROJECT / path).read_text(encoding="utf-8")
    buffer = io.BytesIO()
    # Not compressed: two versions of zlib make different archives of the same files.
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path, text in sorted(texts.items()):
            info = zipfile.ZipInfo(path)
            info.external_attr = 0o100644 << 16
            archive.writestr(info, text)
    return Program(buffer.getvalue())


def _phases() -> Iterator[str]:
    """Yield the modules that have phases of roles: those that import the step."""
    for path in sorted(_ROLES.glob("*/*.py")):
        if "from components.node.step.step import" in path.read_text(encoding="utf-8"):
            yield f"components.roles.{path.parent.name}.{path.stem}"


@cache
def files_of(modules: tuple[str, ...]) -> Mapping[str, str]:
    """Return the texts, by path, of modules and of their imports from components. Package files are empty."""
    texts: dict[str, str] = {}
    wanted = list(modules)
    while wanted:
        path = f"{wanted.pop().replace('.', '/')}.py"
        if path not in texts and (_PROJECT / path).is_file():
            texts[path] = (_PROJECT / path).read_text(encoding="utf-8")
            wanted += _imports(texts[path])
    texts["components/node/install.py"] = (_PROJECT / "components/node/install.py").read_text(encoding="utf-8")
    texts["components/node/commands.py"] = (_PROJECT / "components/node/commands.py").read_text(encoding="utf-8")
    packages = {f"{folder}/__init__.py": "" for path in texts for folder in Path(path).parents if folder.name}
    return dict(sorted({**packages, **texts}.items()))


@cache
def _imports(text: str) -> Sequence[str]:
    """Return the modules that a text imports from components, and imported names that may be modules."""
    imports = [
        (node.module, name.name)
        for node in _statements(ast.parse(text).body)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("components")
        for name in node.names
    ]
    return [path for module, name in imports for path in (f"{module}", f"{module}.{name}")]


def _statements(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield statements, nested ones included. Expressions, most of a module, contain no imports and are skipped."""
    for node in nodes:
        yield node
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from _statements(getattr(node, part, ()))
