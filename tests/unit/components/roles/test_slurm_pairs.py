"""For every pair of distributions, the answer of the checks: works, or the release to write and the reason."""

from __future__ import annotations

import re
from collections.abc import Callable

from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.slurm.check_head import check_head
from components.roles.slurm.check_node import Controller, check_node
from components.roles.slurm.settings_release import OLDEST
from components.roles.slurm.versions import oldest_reached, release

# Each distribution's version of Slurm, and for it as a head node the answer for each node, in the same order.
PAIRS = {
    "Debian 12": ("22.05.8", "25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h"),
    "Debian 13": ("24.11.5", "24.11.5 b | works | 26.05.5 n | 24.11.5 b | works | 25.11.2 n"),
    "Debian forky": ("26.05.5", "26.05.5 b | 26.05.5 s | works | 26.05.5 b | 26.05.5 s | 26.05.5 s"),
    "Ubuntu 22.04": ("21.08.5", "25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h | 25.11.8 h"),
    "Ubuntu 24.04": ("23.11.4", "23.11.4 b | 24.11.5 n | 26.05.5 n | 23.11.4 b | works | 25.11.2 n"),
    "Ubuntu 26.04": ("25.11.2", "25.11.2 b | 25.11.2 s | 26.05.5 n | 25.11.2 b | 25.11.2 s | works"),
}
VERSIONS = {name: version for name, (version, _) in PAIRS.items()}
EXPECTED = {
    (head, node): answer
    for head, (_, answers) in PAIRS.items()
    for node, answer in zip(PAIRS, answers.split(" | "), strict=True)
}
# A part of a refusal, and its letter; `h`: the head node is refused.
SENTENCES = {
    "dynamic nodes need": "b",
    "reaches only nodes of its own release": "s",
    "the controller must be the newest": "n",
}


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


def test_the_checks_give_each_pair_its_release() -> None:
    assert {(head, node): said_by_the_gates(VERSIONS[head], VERSIONS[node]) for head, node in EXPECTED} == EXPECTED


def test_a_release_that_a_check_tells_to_write_is_one_for_both() -> None:
    releases = {answer.partition(" ")[0] for answer in EXPECTED.values()} - {"works"}
    assert releases
    assert [text for text in releases if release(text) < OLDEST] == []
