"""What steps answer, read into types before any of it goes anywhere else.

A machine that has been taken over says what it likes. Each answer is bounded and parsed here, field by field; one that
does not hold is None, and `problem` says so. The next step about that node then refuses it, and the other nodes go on:
an error raised here would end the program, and with it the work on every other machine. It is raised for what the head
node answers of itself, without which there is nothing to do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi

from components.roles.facts import Reader

# Characters of an answer, and how deep its lists and objects may lie in one another.
MOST_SAID, MOST_DEPTH = 2**20, 64
# A measurement's: what the driver may say (validate.sh), and what is added to it.
MOST_MEASURED = 80_000_000


@dataclass(frozen=True)
class Answer:
    """What a step has to answer.

    fields   how each is read; None for a user's words, of which nothing is known but that they are an object
    most     characters of it
    needed   without it there is nothing to do for any machine: a problem of it ends the program
    """

    fields: Mapping[str, Reader] | None
    most: int = MOST_SAID
    needed: bool = False

    def read(self, step: str, stdout: str) -> dict[str, Any]:
        """Return the fields that hold of what a step printed, the others as None, and `problem`.

        Without fields, the object, empty where it is none. RunError where it is needed and has a problem.
        """
        answer = said(stdout, self.most)
        if self.fields is None:
            return answer or {}
        found = read(self.fields, answer or {})
        if answer is None:
            found["problem"] = f"its answer is no JSON object of at most {self.most} characters"
        if self.needed and found["problem"]:
            # What came instead is not quoted: it may be anything, half of a secret too.
            raise pulumi.RunError(
                f"step {step}: {found['problem']}; look at the machine itself, where something answers in the place of "
                "tailrack's steps, then run up again"
            )
        return found

    def before(self, stdout: str) -> dict[str, Any] | None:
        """Return the fields of what a step printed in an earlier run; None where one does not hold, as of a release."""
        answer = said(stdout, self.most)
        if answer is None or self.fields is None:
            return answer
        found = read(self.fields, answer)
        return None if found["problem"] else found

    def demanded(self) -> Answer:
        """Return the same answer as one that is needed."""
        return Answer(self.fields, self.most, needed=True)


NOTHING = Answer({})
MEASUREMENT = Answer(None, MOST_MEASURED)


def said(stdout: str, most: int = MOST_SAID) -> dict[str, Any] | None:
    """Return the JSON object that a step printed, None where it printed anything else. It never raises."""
    if len(stdout) > most:
        return None
    try:
        answer = json.loads(stdout, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) and _is_flat(answer) else None


def _no_number(word: str) -> None:
    raise ValueError(word)


def _is_flat(answer: object) -> bool:
    """Whether nothing lies deeper in it than an answer's parts do: who goes through it may do so by recursion."""
    level: list[Any] = [answer]
    for _ in range(MOST_DEPTH):
        inner = [part for each in level for part in (each.values() if isinstance(each, dict) else each)]
        level = [part for part in inner if isinstance(part, dict | list)]
        if not level:
            return True
    return False


def read(fields: Mapping[str, Reader], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an answer that hold, the others as None, and `problem`: empty, or which do not hold.

    What came instead is not quoted: it may be anything.
    """
    found: dict[str, Any] = {}
    wrong = []
    for name, parse in fields.items():
        try:
            found[name] = parse(answer.get(name))
        except ValueError:
            found[name] = None
            wrong.append(name)
    problem = f"its answer has no {', '.join(wrong)} that could be one" if wrong else ""
    return {**found, "problem": problem}
