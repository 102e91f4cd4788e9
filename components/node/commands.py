"""The commands of the program. A table beside the modules has those of roles (components/roles/program.py)."""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
from collections.abc import Sequence

# The table: the module of each command, by the command's name. Its function `main` takes the arguments.
TABLE = "commands.json"


def main(arguments: Sequence[str]) -> int:
    """Run a command and return its exit status."""
    table = json.loads(pkgutil.get_data("components", TABLE) or b"{}")
    if not arguments or arguments[0] not in table:
        sys.stderr.write(f"unknown command; there are {', '.join(sorted(table))}\n")
        return 2
    command, *rest = arguments
    status: int | None = importlib.import_module(table[command]).main(rest)
    return status or 0
