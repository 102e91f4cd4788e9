"""Slurm's short form of node names: `a[1-3,7],head`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import groupby

_NUMBERED = re.compile(r"^(.*?)(0|[1-9][0-9]*)$")


def fold(names: Iterable[str]) -> str:
    """Return the names folded by prefix, in natural order, each once. Numbers with leading zeros stay as they are."""
    plain: set[str] = set()
    numbered: dict[str, set[int]] = {}
    for name in names:
        match = _NUMBERED.match(name)
        if match and not match[1].endswith(tuple("0123456789")):
            numbered.setdefault(match[1], set()).add(int(match[2]))
        else:
            plain.add(name)
    parts = [f"{prefix}{_ranges(sorted(numbers))}" for prefix, numbers in numbered.items()]
    return ",".join(sorted([*parts, *plain]))


def _ranges(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return str(numbers[0])
    runs = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        values = [value for _, value in run]
        runs.append(str(values[0]) if len(values) == 1 else f"{values[0]}-{values[-1]}")
    return f"[{','.join(runs)}]"
