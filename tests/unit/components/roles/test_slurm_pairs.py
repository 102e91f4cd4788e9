"""docs/slurm-releases.md says of every pair of head node and node what the gates say of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.slurm.check_head import check_head
from components.roles.slurm.check_node import Controller, check_node
from components.roles.slurm.settings_release import OLDEST
from components.roles.slurm.versions import oldest_reached, release

PAGE = Path(__file__).parents[4] / "docs" / "slurm-releases.md"
# What the gate says, and the letter that the page has for it.
SENTENCES = {
    "dynamic nodes need": "b",
    "reaches only nodes of its own release": "s",
    "the controller must be the newest": "n",
}


def table(title: str) -> list[list[str]]:
    """The cells of the table below a title, its first line too."""
    text = PAGE.read_text(encoding="utf-8").partition(f"\n## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) > 2, title
    return [[cell.strip() for cell in row] for row in rows]


def slurm_of() -> dict[str, str]:
    """Each distribution's version of Slurm, as the page has it."""
    return {row[0]: row[1] for row in table("What distributions have")[1:]}


def pairs() -> list[tuple[str, str, str]]:
    """Head node, node, and what the page says of the pair, without the mark of what was run."""
    first, *rows = table("Every pair as the machines are")
    return [(row[0], node, cell.strip("*")) for row in rows for node, cell in zip(first[1:], row[1:], strict=True)]


def test_every_pair_of_distributions_is_there_once() -> None:
    named = list(slurm_of())
    assert [(head, node) for head, node, _ in pairs()] == [(head, node) for head in named for node in named]


def said_by_the_gates(head: str, node: str) -> str:
    """`works`, or the release that the first gate that refuses tells to write, with the letter of its reason."""
    controller = Controller(
        head, oldest_reached(head), head_cgroups=False, slurm_needs_cgroups="", node_promised_cpus=0, node_promised_mb=0
    )
    gates: list[tuple[str, str, Callable[[Step], None]]] = [
        ("head", head, check_head),
        ("node", node, lambda step: check_node(step, controller)),
    ]
    for name, version, gate in gates:
        try:
            gate(Step("a1", "a1-check", results={"slurm_version": version, "cgroups": False}))
        except Failure as refused:
            (letter,) = [letter for words, letter in SENTENCES.items() if words in refused.reason]
            (asked,) = re.findall(r"set tailrack:slurm\.release: (\S+) and", refused.remedy)
            return f"{asked} {'h' if name == 'head' else letter}"
    return "works"


def test_the_page_and_the_checks_agree_on_each_pair() -> None:
    versions = slurm_of()
    found = [(head, node, said_by_the_gates(versions[head], versions[node])) for head, node, _ in pairs()]
    assert found == pairs()


def test_a_release_that_the_page_tells_to_write_is_one_for_both() -> None:
    releases = {said.partition(" ")[0] for _, _, said in pairs()} - {"works"}
    assert releases
    assert [text for text in releases if release(text) < OLDEST] == []


@pytest.mark.parametrize("distribution", ["Debian 12", "Debian 13", "Debian forky"])
def test_the_table_contains_every_distribution_of_the_lab(distribution: str) -> None:
    assert distribution in slurm_of()
