"""Names of machines as people read them: sorted by their numbers, and many of them in a few words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

_MOST = 20  # in one list
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]*)")


def in_order(names: Iterable[str]) -> list[str]:
    """Names, each once: n2 before n10."""

    def by_numbers(name: str) -> list[str]:
        return [part.zfill(20) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

    return sorted(set(names), key=by_numbers)


def folded(names: Iterable[str]) -> list[str]:
    """Names in order, as Slurm has runs of them: `n[1-400]`; of a great many the first, and how many more."""
    items = list(_runs(in_order(names)))
    rest = sum(count for _, count in items[_MOST:])
    return [*(word for word, _ in items[:_MOST]), *([f"{rest} more"] if rest else [])]


def _runs(names: list[str]) -> Iterator[tuple[str, int]]:
    """Each word with how many names it is."""

    def run(at: tuple[int, str]) -> tuple[str, int]:
        place, name = at
        numbered = _NUMBERED.fullmatch(name)
        # What stays the same along a run of numbers is how far each is from its place.
        return (numbered[1], int(numbered[2]) - place) if numbered else (name, -1)

    for _, each in groupby(enumerate(names), run):
        own = [name for _, name in each]
        first, last = _NUMBERED.fullmatch(own[0]), _NUMBERED.fullmatch(own[-1])
        if len(own) > 2 and first and last:
            yield f"{first[1]}[{first[2]}-{last[2]}]", len(own)
        else:
            yield from ((name, 1) for name in own)
