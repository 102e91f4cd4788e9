"""The commands of the program. A table beside the modules has those of roles (components/roles/program.py)."""

import importlib
import json
import pkgutil
import sys
from collections.abc import Callable, Sequence

# The table: the module of each command, by the command's name. Its function `main` takes the arguments, or that of an
# entry `MODULE:FUNCTION`.
TABLE = "commands.json"


def main(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status."""
    table = json.loads(pkgutil.get_data("components", TABLE) or b"{}")
    if not arguments or arguments[0] not in table:
        sys.stderr.write(f"unknown command; there are {', '.join(sorted(table))}\n")
        return 2
    command, *rest = arguments
    status: int | None = function_of(table[command])(rest)
    return status or 0


def function_of(entry: str) -> Callable[[Sequence[str]], int | None]:
    """Return the function of an entry of the table."""
    module, _, name = entry.partition(":")
    function: Callable[[Sequence[str]], int | None] = getattr(importlib.import_module(module), name or "main")
    return function
