"""The last answers of steps, for previews: a preview runs no step, and most steps will answer the same again.

Without them, every value made from an answer would be unknown as soon as its step runs again: a new user would make
slurm.conf unknown, because the head node is checked again, and each measurement, because nodes are checked again.
`make preview` passes the answers (cli/preview/last_answers.py) and prints which results may differ. A preview of the
Pulumi CLI alone has none.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pulumi

# The environment variable with the path of a JSON file: the output of each step by the step's name.
VARIABLE = "TAILRACK_LAST_ANSWERS"


def last_answer(step: str) -> str:
    """Return the last output of a step in a preview; empty if it is unknown, and outside of previews."""
    path = os.environ.get(VARIABLE)
    return str(_answers(path).get(step, "")) if path and pulumi.runtime.is_dry_run() else ""


@cache
def _answers(path: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return answers
