"""Pack a Python program of several modules into one text, for machines with Python alone."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

_PROJECT = Path(__file__).parents[2]
# importlib.abc would need less code here, but importing it takes a fifth of the run time of a short program.
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
    """Return a program for Python 3.10 or newer that calls `main` of a module and exits with its result.

    argument   the argument of `main`, as Python code: `sys.argv[1:]`
    data       files that the modules read with pkgutil.get_data; paths start in the project's folder
    """
    return _LOADER.format(
        module=module, argument=argument, files=json.dumps({**files_of(module), **_texts(*data)}, indent=0)
    )


@cache
def files_of(module: str) -> Mapping[str, str]:
    """Return the texts, by path, of a module and its imports from components. Package files are empty."""
    texts: dict[str, str] = {}
    wanted = [module]
    while wanted:
        path = f"{wanted.pop().replace('.', '/')}.py"
        if path not in texts and (_PROJECT / path).is_file():
            texts |= _texts(path)
            wanted += _imports(texts[path])
    packages = {f"{folder}/__init__.py": "" for path in texts for folder in Path(path).parents if folder.name}
    return dict(sorted({**packages, **texts}.items()))


def _texts(*paths: str) -> dict[str, str]:
    return {path: (_PROJECT / path).read_text(encoding="utf-8") for path in paths}


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
