"""How long slurmctld takes a silent node for alive: our bounds, held against slurmctld's loop, second by second."""

import itertools
from pathlib import Path

import pytest

from components.roles.slurm.slurm.slurm_conf import SLURMD_TIMEOUT
from tests.slurm_silence import silence

DOCS = Path(__file__).parents[4] / "docs"


def down_after(timeout: int, dies: int, answer_takes: int, late: int) -> int:
    """Seconds from a node's death until slurmctld (24.11.5) takes it for DOWN.

    A transcript of _slurmctld_background's condition and of ping_nodes' loop for one node, in whole seconds as there.
    late   by how much each look at the clock comes late
    """
    last_round = last_ping = 0
    answered = 0
    for now in itertools.count(1):
        if now - last_round < timeout // 3 + late:
            continue
        last_round, node_dead_time, last_ping = now, last_ping - timeout, now
        if answered <= node_dead_time:
            return now - dies
        if answered < now - timeout // 3 and now + answer_takes < dies:
            answered = now + answer_takes
    raise AssertionError


@pytest.mark.parametrize("timeout", [SLURMD_TIMEOUT, 120, 600])
def test_a_node_is_down_between_the_bounds_whenever_it_dies_and_however_late_its_answers_are(timeout: int) -> None:
    bounds = silence(timeout)
    begin = 4 * timeout
    found = [
        down_after(timeout, begin + phase, answer_takes, late)
        for phase in range(0, 2 * timeout, 3)
        for answer_takes in (0, 1, 2)
        for late in (0, 1)
    ]
    assert bounds.harmless <= min(found) <= bounds.harmless + 5
    assert bounds.down - 10 <= max(found) <= bounds.down


def test_the_measured_silence_lies_between_the_bounds() -> None:
    # A killed machine, with SlurmdTimeout=600 (then ours).
    assert silence(600).harmless < 963 < silence(600).down


def test_the_docs_say_these_numbers() -> None:
    for page, timeout in (
        ("pools.md", SLURMD_TIMEOUT),
        ("pools.md", 120),
        ("decisions/0003-slurm-over-a-tailnet.md", SLURMD_TIMEOUT),
    ):
        text = " ".join((DOCS / page).read_text(encoding="utf-8").split())
        bounds = silence(timeout)
        assert f"{bounds.harmless} to {bounds.down} s" in text, page
        assert "pools" not in page or f"{bounds.noticed} s" in text, page
