"""A Python program of several modules as one text, for a machine that has Python and nothing of ours."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

_PROJECT = Path(__file__).parents[2]
# With importlib.abc its modules would come by themselves, and a fifth of what a short program takes is spent on those.
_LOADER = '''#!/usr/bin/python3
"""{module} of tailrack, and the modules that it imports, in one file."""
import sys
from importlib.machinery import ModuleSpec

FILES = {files}


class Packed:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        module = name.replace(".", "/")
        file = module + ".py" if module + ".py" in FILES else module + "/__init__.py"
        if file not in FILES:
            return None
        spec = ModuleSpec(name, cls, origin=file, is_package=file.endswith("/__init__.py"))
        spec.has_location = True
        return spec

    @staticmethod
    def create_module(spec):
        return None

    @classmethod
    def exec_module(cls, module):
        exec(compile(FILES[module.__file__], module.__file__, "exec", dont_inherit=True), module.__dict__)

    @staticmethod
    def get_data(path):
        return FILES[path].encode()


sys.meta_path.insert(0, Packed)
from {module} import main

sys.exit(main({argument}))'''


def python_program(module: str, argument: str, *data: str) -> str:
    """Return a text for python3, 3.10 or newer, that calls `main` of a module of components and exits as it says.

    argument   what `main` is given, as Python has it: `sys.argv[1:]`
    data       files beside the modules that they read by pkgutil.get_data, from the project's folder on
    """
    return _LOADER.format(
        module=module, argument=argument, files=json.dumps({**files_of(module), **_texts(*data)}, indent=0)
    )


@cache
def files_of(module: str) -> Mapping[str, str]:
    """Return the texts of a module and of all of components that it imports, by path; those of packages are empty."""
    found: dict[str, str] = {}
    wanted = [module]
    while wanted:
        path = f"{wanted.pop().replace('.', '/')}.py"
        if path not in found and (_PROJECT / path).is_file():
            found |= _texts(path)
            wanted += _imports(found[path])
    packages = {f"{folder}/__init__.py": "" for path in found for folder in Path(path).parents if folder.name}
    return dict(sorted({**packages, **found}.items()))


def _texts(*paths: str) -> dict[str, str]:
    return {path: (_PROJECT / path).read_text(encoding="utf-8") for path in paths}


@cache
def _imports(text: str) -> Sequence[str]:
    """Modules that a text imports from components, and names that may be such."""
    own = [
        (node.module, name.name)
        for node in _statements(ast.parse(text).body)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("components")
        for name in node.names
    ]
    return [each for module, name in own for each in (f"{module}", f"{module}.{name}")]


def _statements(of: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Statements, and those in them. An import is one; what is in an expression, most of a module, is none."""
    for node in of:
        yield node
        for part in ("body", "handlers", "orelse", "finalbody", "cases"):
            yield from _statements(getattr(node, part, ()))
