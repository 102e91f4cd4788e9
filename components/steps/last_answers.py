"""What steps answered when they last ran, for a preview: none runs in it, and most of those that will answer the same.

Without that, all that is made of an answer would be unknown as soon as its step runs again: for a new user slurm.conf,
because the head node is looked at again, and each measurement, because nodes are. `make preview` hands the answers in
(cli/preview/last_answers.py) and says what may come of others. A preview of the CLI alone has none.
"""

from __future__ import annotations

import json
import os
from functools import cache
from pathlib import Path
from typing import Any

import pulumi

# Of the environment: a file with a JSON object, the name of a step to what it printed.
VARIABLE = "TAILRACK_LAST_ANSWERS"


def last_answer(step: str) -> str:
    """Return what a step printed when it last ran; empty where that is not known, and wherever steps are run."""
    path = os.environ.get(VARIABLE)
    return str(_answers(path).get(step, "")) if path and pulumi.runtime.is_dry_run() else ""


@cache
def _answers(path: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return answers
