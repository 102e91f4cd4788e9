"""A slow node, or a bad link, is named in few rounds, and nobody else."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from components.validation.slow_nodes import Groups, Suspect, search
from tests.chance import dice as dice_of

NOISE = 0.05
HEALTHY = 40.0
Measure = Callable[[tuple[str, ...]], float | None]


@dataclass(frozen=True)
class Cluster:
    """Nodes with what each can give, and perhaps a link that gives less, as fractions of what is healthy."""

    nodes: tuple[str, ...]
    slow: dict[str, float]
    link: frozenset[str] = frozenset()
    link_gives: float = 1.0
    lost_per_doubling: float = 0.0

    def busbw(self, group: tuple[str, ...]) -> float:
        """Without noise."""
        gives = min(self.slow.get(node, 1.0) for node in group)
        if self.link and self.link <= set(group):
            gives = min(gives, self.link_gives)
        return HEALTHY * gives * (1 - self.lost_per_doubling * math.log2(len(group) / 2))


def dice(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311 - of noise, and it has to come out the same again


def some_cluster(chance: random.Random, lost_per_doubling: float = 0.0) -> Cluster:
    """2 to 64 nodes with one or two slow ones, or one bad link, that give a tenth to three quarters."""
    nodes = tuple(f"n{number:02d}" for number in range(chance.randint(2, 64)))
    kind = chance.choice(("one", "two", "link"))
    if kind == "link":
        pair = frozenset(chance.sample(nodes, 2))
        return Cluster(nodes, {}, pair, chance.uniform(0.1, 0.75), lost_per_doubling)
    names = chance.sample(nodes, 1 if kind == "one" else 2)
    return Cluster(nodes, {name: chance.uniform(0.1, 0.75) for name in names}, lost_per_doubling=lost_per_doubling)


def noisy(cluster: Cluster, chance: random.Random) -> Measure:
    return lambda group: cluster.busbw(group) * chance.uniform(1 - NOISE, 1 + NOISE)


def run(
    nodes: tuple[str, ...], measure: Measure, reference: float | None = None, noise: float = NOISE
) -> tuple[Suspect, ...]:
    """The suspects of a search, whose rounds are held against what was agreed."""

    def one_round(number: int, groups: Groups) -> Mapping[tuple[str, ...], float | None]:
        assert number <= math.ceil(math.log2(len(nodes))) + 2
        members = [node for group in groups for node in group]
        assert groups
        assert len(members) == len(set(members))
        assert set(members) <= set(nodes)
        assert min(map(len, groups)) >= 2
        return {group: measure(group) for group in groups}

    return search(nodes, reference, one_round, noise)


def outcome(cluster: Cluster, suspects: tuple[Suspect, ...]) -> tuple[bool, bool]:
    """(all that is bad was named, somebody was accused who is not).

    Of two or three nodes a slow one may be named as a pair with another; of more it must be named alone.
    """
    named = [frozenset(suspect.nodes) for suspect in suspects]
    if cluster.link:
        return cluster.link in named, any(pair != cluster.link for pair in named)
    few = len(cluster.nodes) <= 3
    wrong = any(
        not (who <= cluster.slow.keys() or (few and len(who) == 2 and who & cluster.slow.keys())) for who in named
    )
    if few:
        return bool(named), wrong
    return all(frozenset({node}) in named for node in cluster.slow), wrong or any(len(who) == 2 for who in named)


def outcomes(seeds: range, known: bool, lost_per_doubling: float = 0.0) -> tuple[list[int], list[int]]:
    """The seeds of clusters in which not all was found, and of those in which somebody was accused wrongly."""
    missed, accused = [], []
    for seed in seeds:
        chance = dice(seed)
        cluster = some_cluster(chance, lost_per_doubling)
        reference = HEALTHY if known or len(cluster.nodes) == 2 else None
        found, wrong = outcome(cluster, run(cluster.nodes, noisy(cluster, chance), reference))
        missed += [] if found else [seed]
        accused += [seed] if wrong else []
    return missed, accused


@pytest.mark.parametrize(("count", "known", "most_missed"), [(50, True, 1), (50, False, 1), (1000, False, 20)])
def test_the_search_solves_98_percent_of_clusters_and_accuses_no_sound_node(count, known, most_missed):
    first = 0 if count == 50 else dice_of("slow nodes").randrange(2**32)
    missed, accused = outcomes(range(first, first + count), known)
    print(f"seeds from {first}: missed {missed}, accused wrongly {accused}")
    assert accused == []
    assert len(missed) <= most_missed


@pytest.mark.parametrize("reference", [None, HEALTHY, 10 * HEALTHY])
def test_any_floor_leaves_sound_nodes_unsuspected(reference):
    for number in range(4, 65):
        chance = dice(number)
        nodes = tuple(f"n{index}" for index in range(number))
        assert run(nodes, noisy(Cluster(nodes, {}), chance), reference) == (), number


def test_a_link_of_ring_neighbours_accuses_no_other_node():
    found = 0
    for seed in range(300):
        chance = dice(seed)
        nodes = tuple(f"n{index:02d}" for index in range(chance.randint(4, 64)))
        at = chance.randrange(len(nodes))
        link = frozenset((nodes[at], nodes[at - 1]))

        def measure(group: tuple[str, ...], link: frozenset[str] = link, chance: random.Random = chance) -> float:
            ring = {frozenset((group[index], group[index - 1])) for index in range(len(group))}
            return HEALTHY * chance.uniform(0.95, 1.05) * (0.4 if link in ring else 1.0)

        suspects = run(nodes, measure)
        assert {frozenset(suspect.nodes) for suspect in suspects} <= {link}, seed
        found += bool(suspects)
    assert found >= 200


@pytest.mark.parametrize("noise", [0.1, 0.2, 0.3])
def test_a_search_that_knows_the_noise_accuses_no_sound_node(noise):
    found = 0
    for seed in range(200):
        chance = dice(seed)
        nodes = tuple(f"n{index:02d}" for index in range(chance.randint(4, 64)))
        slow = {chance.choice(nodes): 0.2} if seed % 2 else {}
        cluster = Cluster(nodes, slow)

        def measure(group: tuple[str, ...], cluster: Cluster = cluster, chance: random.Random = chance) -> float:
            return cluster.busbw(group) * chance.uniform(1 - noise, 1 + noise)

        suspects = run(nodes, measure, noise=noise)
        assert {suspect.nodes for suspect in suspects} <= {(name,) for name in slow}, seed
        found += len(suspects)
    assert found == 100


NODES = ("a", "b", "c", "d", "e", "f")


def test_a_bad_link_is_named_by_its_two_nodes():
    for pair in (("a", "b"), ("a", "f"), ("c", "f")):
        (suspect,) = run(NODES, Cluster(NODES, {}, frozenset(pair), 0.25).busbw)
        assert suspect.nodes == pair
        assert (suspect.busbw_gb_per_s, suspect.reference_gb_per_s) == (10.0, 40.0)
        assert "the link between them" in suspect.reason


@pytest.mark.parametrize("number", [2, 3, 4, 6, 64])
def test_a_failure_of_every_measurement_accuses_no_node(number):
    assert run(tuple(map(str, range(number))), lambda group: None) == ()


@pytest.mark.parametrize("reference", [None, 10.5])
def test_two_nodes_that_reach_the_reference_or_lack_one_are_not_accused(reference):
    assert run(("a", "b"), lambda group: 10.0, reference) == ()
