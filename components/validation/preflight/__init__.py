"""Preflight: what is wrong with nodes before they are measured. Runs in a job on all of them, as a plain user.

`program()` is the text that a job runs; `read` makes findings by node of what the job printed. What root alone can see
is collected by collect.py, a unit of role gpu. Each kind of check is a module of its own, with the parser of what it
reads.
"""

from __future__ import annotations

import json
from pathlib import Path

from components.validation.preflight.across import with_comparison
from components.validation.preflight.findings import Finding, read_lines, worst_first

__all__ = ["Finding", "program", "read"]

_FOLDER = Path(__file__).parent
# collect.py runs by itself; __init__ and across are for where findings are read.
_NOT_SENT = {"__init__.py", "across.py", "collect.py"}
_LOADER = '''"""Preflight of tailrack: components/validation/preflight in one file."""
import sys
import tempfile
from pathlib import Path

SOURCES = {sources}

with tempfile.TemporaryDirectory() as folder:
    for name, source in SOURCES.items():
        path = Path(folder, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source, encoding="utf-8")
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    from {package}.main import main

    status = main(sys.argv[1])
sys.exit(status)
'''


def program() -> str:
    """Return the whole program as one text for python3, 3.10 or newer without packages: `python3 FILE ARGUMENT`."""
    place = __name__.replace(".", "/")
    modules = {f"{part}/__init__.py": "" for part in ("components", "components/validation", place)}
    modules |= {
        f"{place}/{path.name}": path.read_text(encoding="utf-8")
        for path in sorted(_FOLDER.glob("*.py"))
        if path.name not in _NOT_SENT
    }
    return _LOADER.format(sources=json.dumps(modules, indent=0), package=__name__)


def read(output: str) -> dict[str, list[Finding]]:
    """Return findings by node, worst first, from the output of the job; survives anything, and compares the nodes."""
    return {node: worst_first(items) for node, items in with_comparison(read_lines(output)).items()}
