"""Parse and bound the answers of steps before any other code uses them.

A hostile machine may print anything. Each answer is parsed here, field by field. An invalid field becomes None, and
`problem` names it; the node's next step then rejects the node, and the other nodes continue. An exception would end the
program and the work on all machines. It is raised only for the head node's own answers: without them no node can join.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pulumi

from components.roles.facts import Reader

# Characters of an answer, and how deeply its lists and objects may be nested.
MAX_CHARACTERS, MAX_DEPTH = 2**20, 64
# Characters of a measurement's answer: a report's limit (validation/slurm_jobs.py), and the text added to it.
MAX_MEASUREMENT_CHARACTERS = 80_000_000
# The environment variable with the path of a JSON file: the output of each step by the step's name.
LAST_ANSWERS = "TAILRACK_LAST_ANSWERS"


@dataclass(frozen=True)
class Answer:
    """The answer that a step has to print.

    fields   the reader of each field; None for untrusted text of which only the form, a JSON object, is known
    most     the greatest number of characters
    needed   a problem of this answer ends the program, because no machine can continue without it
    """

    fields: Mapping[str, Reader] | None
    most: int = MAX_CHARACTERS
    needed: bool = False

    def read(self, step: str, stdout: str) -> dict[str, Any]:
        """Return the valid fields of a step's output, the others as None, and `problem`.

        Without `fields`, return the object, empty if the output is not one. Raises RunError for a problem of an answer
        that is needed.
        """
        answer = parse_object(stdout, self.most)
        if self.fields is None:
            return answer or {}
        result = read(self.fields, answer or {})
        if answer is None:
            result["problem"] = f"its answer is not a JSON object of at most {self.most} characters"
        if self.needed and result["problem"]:
            # The output is not quoted: it may be half of a secret.
            raise pulumi.RunError(
                f"step {step}: {result['problem']}; another program on that machine answers instead of tailrack's "
                f"steps; inspect the machine, write another text at tailrack:cluster.repair.{step.rpartition('-')[0]}, "
                "then run up again"
            )
        return result

    def read_earlier(self, stdout: str) -> dict[str, Any] | None:
        """Return the fields of an earlier run's output; None if one is invalid, for example from another release."""
        answer = parse_object(stdout, self.most)
        if answer is None or self.fields is None:
            return answer
        result = read(self.fields, answer)
        return None if result["problem"] else result

    def as_needed(self) -> Answer:
        """Return the same answer with `needed` set."""
        return Answer(self.fields, self.most, needed=True)


NOTHING = Answer({})
MEASUREMENT = Answer(None, MAX_MEASUREMENT_CHARACTERS)


def parse_object(stdout: str, most: int = MAX_CHARACTERS) -> dict[str, Any] | None:
    """Return the JSON object in a step's output; None for any other output. It never raises."""
    if len(stdout) > most:
        return None
    try:
        answer = json.loads(stdout, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) and _is_flat(answer) else None


def _reject_constant(name: str) -> None:
    raise ValueError(name)


def _is_flat(answer: object) -> bool:
    """Return whether the nesting stays within MAX_DEPTH, so that other code may walk the answer by recursion."""
    level: list[Any] = [answer]
    for _ in range(MAX_DEPTH):
        inner = [part for item in level for part in (item.values() if isinstance(item, dict) else item)]
        level = [part for part in inner if isinstance(part, dict | list)]
        if not level:
            return True
    return False


def read(fields: Mapping[str, Reader], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the valid fields of an answer, the others as None, and `problem`: empty, or the names of invalid fields.

    The problem does not quote the answer, which may contain anything.
    """
    values: dict[str, Any] = {}
    invalid = []
    for name, parse in fields.items():
        try:
            values[name] = parse(answer.get(name))
        except ValueError:
            values[name] = None
            invalid.append(name)
    problem = f"its answer has no valid {', '.join(invalid)}" if invalid else ""
    return {**values, "problem": problem}


def last_answer(step: str) -> str:
    """Return the last output of a step in a preview; empty if it is unknown, and outside of previews.

    A preview runs no step, and most steps will answer the same again. Without their last answers, every value made from
    one would be unknown as soon as its step runs again: a new user would make slurm.conf unknown, because the head node
    is checked again, and each measurement, because nodes are checked again. `make preview` passes the answers
    (cli/preview/last_answers.py) and prints which results may differ. A preview of the Pulumi CLI alone has none.
    """
    path = os.environ.get(LAST_ANSWERS)
    return str(_answers(path).get(step, "")) if path and pulumi.runtime.is_dry_run() else ""


@cache
def _answers(path: str) -> dict[str, Any]:
    answers: dict[str, Any] = json.loads(Path(path).read_text(encoding="utf-8"))
    return answers
