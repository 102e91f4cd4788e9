"""Lists of machine names for people: sorted by number, and shortened."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import groupby

_MOST = 20  # in one list
_NUMBERED = re.compile(r"(.*?)(0|[1-9][0-9]*)")


def in_order(names: Iterable[str]) -> list[str]:
    """Return the names sorted, without duplicates: n2 before n10."""

    def by_numbers(name: str) -> list[str]:
        return [part.zfill(20) if part.isdigit() else part for part in re.split(r"(\d+)", name)]

    return sorted(set(names), key=by_numbers)


def folded(names: Iterable[str]) -> list[str]:
    """Return the names in order, with Slurm's ranges such as `n[1-400]`; of a long list, the first and a count."""
    items = list(_runs(in_order(names)))
    rest = sum(count for _, count in items[_MOST:])
    return [*(text for text, _ in items[:_MOST]), *([f"{rest} more"] if rest else [])]


def _runs(names: list[str]) -> Iterator[tuple[str, int]]:
    """Give each name or range, with its number of names."""

    def key(item: tuple[int, str]) -> tuple[str, int]:
        index, name = item
        numbered = _NUMBERED.fullmatch(name)
        # In a range, the difference between number and index is constant.
        return (numbered[1], int(numbered[2]) - index) if numbered else (name, -1)

    for _, group in groupby(enumerate(names), key):
        members = [name for _, name in group]
        first, last = _NUMBERED.fullmatch(members[0]), _NUMBERED.fullmatch(members[-1])
        if len(members) > 2 and first and last:
            yield f"{first[1]}[{first[2]}-{last[2]}]", len(members)
        else:
            yield from ((name, 1) for name in members)
