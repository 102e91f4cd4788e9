"""Slurm's short form of node names."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.config_files.hostlist import fold

NAMES = st.from_regex(r"[a-z][a-z0-9-]{0,4}[0-9]{0,3}", fullmatch=True)


def unfold(text: str) -> list[str]:
    """Every name of a folded text, as `scontrol show hostnames` would say them."""
    names = []
    for part in re.findall(r"[^,\[\]]+(?:\[[^\]]*\])?", text):
        prefix, _, ranges = part.rstrip("]").partition("[")
        if not ranges:
            names.append(prefix)
        for each in filter(None, ranges.split(",")):
            first, _, last = each.partition("-")
            names += [f"{prefix}{number}" for number in range(int(first), int(last or first) + 1)]
    return names


@given(st.lists(NAMES))
def test_what_is_folded_unfolds_to_the_same_names_each_once(names: list[str]) -> None:
    assert sorted(unfold(fold(names))) == sorted(set(names))


@given(st.lists(NAMES), st.randoms())
def test_the_order_of_the_names_does_not_matter(names: list[str], random: object) -> None:
    assert fold(names) == fold(reversed(names))


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["head"], "head"),
        (["a1"], "a1"),
        (["a1", "a2", "a3"], "a[1-3]"),
        (["a10", "a9", "a2", "a1"], "a[1-2,9-10]"),
        (["a1", "b1", "head", "a2"], "a[1-2],b1,head"),
        (["a01", "a1"], "a01,a1"),  # not the same name
        (["a01", "a02"], "a01,a02"),
        (["a0", "a1"], "a[0-1]"),
        (["gpu-1-1", "gpu-1-2", "gpu-2-1"], "gpu-1-[1-2],gpu-2-1"),
        (["a1", "a1"], "a1"),
    ],
)
def test_names_are_folded_by_prefix_in_natural_order(names: list[str], folded: str) -> None:
    assert fold(names) == folded


def test_a_thousand_nodes_are_one_word() -> None:
    assert fold(f"n{number}" for number in range(1, 1001)) == "n[1-1000]"
