"""How many steps a regular expression takes on a text, going back and trying again: Python's `re` does not tell.

Its patterns are walked as they are parsed, one character at a time. What is found must be what `re` itself finds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

PARSER: Any = import_module("re._parser")
COMPILER: Any = import_module("re._compiler")
# What takes one character or none, and has one way to do so.
SIMPLE = ("LITERAL", "NOT_LITERAL", "ANY", "IN", "AT")


class Counted:
    """A pattern in whose place it stands; `total` is of all of them since it was last set."""

    total = 0

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._real = pattern
        self._parsed = PARSER.parse(pattern.pattern, pattern.flags)
        self._simple: dict[int, re.Pattern[str]] = {}

    def match(self, text: str) -> re.Match[str] | None:
        return self._as_counted(self._real.match(text), next(self._ends(self._parsed, text, 0), None))

    def fullmatch(self, text: str) -> re.Match[str] | None:
        whole = (end for end in self._ends(self._parsed, text, 0) if end == len(text))
        return self._as_counted(self._real.fullmatch(text), next(whole, None))

    def search(self, text: str, begin: int = 0) -> re.Match[str] | None:
        ends = (next(self._ends(self._parsed, text, start), None) for start in range(begin, len(text) + 1))
        end = next((end for end in ends if end is not None), None)
        return self._as_counted(self._real.search(text, begin), end)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        found = self.search(text)
        while found:
            yield found
            found = self.search(text, found.end())

    def _as_counted(self, found: re.Match[str] | None, end: int | None) -> re.Match[str] | None:
        assert (found.end() if found else None) == end, self._real
        return found

    def _ends(self, items: Any, text: str, at: int) -> Iterator[int]:
        """Where the items in their order end when they begin there, each way that there is, the preferred one first."""
        if not len(items):
            yield at
            return
        for middle in self._ends_of_one(items[0], text, at):
            yield from self._ends(items[1:], text, middle)

    def _ends_of_one(self, item: Any, text: str, at: int) -> Iterator[int]:
        Counted.total += 1
        kind, argument = str(item[0]), item[1]
        if kind in SIMPLE:
            if found := self._compiled(item).match(text, at):
                yield found.end()
        elif kind == "SUBPATTERN":
            yield from self._ends(argument[-1], text, at)
        elif kind == "BRANCH":
            for way in argument[1]:
                yield from self._ends(way, text, at)
        elif kind in ("MAX_REPEAT", "MIN_REPEAT"):
            least, most, inner = argument
            if len(inner) == 1 and str(inner[0][0]) in SIMPLE:
                run = (end for turn, end in enumerate(self._run(inner[0], text, at, most)) if turn >= least)
                yield from reversed([*run]) if kind == "MAX_REPEAT" else run
            else:
                yield from self._turns(argument, text, at, kind == "MAX_REPEAT")
        else:
            raise NotImplementedError(kind)

    def _run(self, item: Any, text: str, at: int, most: int) -> Iterator[int]:
        """Where a simple item ends after no turn, one, two and so on."""
        turn, end = 0, at
        yield end
        while turn < most and (found := self._compiled(item).match(text, end)):
            Counted.total += 1
            turn, end = turn + 1, found.end()
            yield end

    def _turns(self, repeat: Any, text: str, at: int, greedy: bool, turn: int = 0) -> Iterator[int]:
        """Where something repeated ends that has had some turns already."""
        least, most, inner = repeat
        if not greedy and turn >= least:
            yield at
        if turn < most:
            for middle in self._ends(inner, text, at):
                yield from self._turns(repeat, text, middle, greedy, turn + 1)
        if greedy and turn >= least:
            yield at

    def _compiled(self, item: Any) -> re.Pattern[str]:
        """A pattern of one simple item alone."""
        if id(item) not in self._simple:
            one = PARSER.SubPattern(self._parsed.state, [item])
            self._simple[id(item)] = COMPILER.compile(one, self._real.flags)
        return self._simple[id(item)]
