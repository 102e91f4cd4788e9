"""Whether a node has become slow since it joined: which figures speak against it, and what is remembered."""

import json
from dataclasses import asdict

import pytest

from components.validation.became_slow import JOINED, Measured, Record, against, better, remembered
from components.validation.untrusted import read_or_default

WAS = Record(reference=364.8, since=JOINED)
NVLINK = 0.15


def figure(gb_per_s: float | None, *broken: str, floor: float | None = None, tolerance: float = NVLINK) -> Measured:
    return Measured(gb_per_s, floor, tolerance, broken)


@pytest.mark.parametrize(
    ("found", "record", "words"),
    [
        (figure(360.0), WAS, ""),
        (figure(180.1), WAS, "180.1 GB/s, 364.8 when it joined"),
        # As much less as runs of a sound machine may lie apart is the same.
        (figure(311.0), WAS, ""),
        (figure(309.0), WAS, "309.0 GB/s, 364.8 when it joined"),
        (figure(0.0123, tolerance=0.3), Record(reference=0.05), "0.0123 GB/s, 0.05 when it was first checked"),
        (figure(0.036, tolerance=0.3), Record(reference=0.05), ""),
        # Hardware that nobody knows, measured for the first time.
        (figure(1.0), Record(), ""),
        (figure(None), WAS, ""),
        (figure(320.0, floor=330.0), WAS, "320.0 GB/s, 364.8 when it joined, below its floor of 330.0"),
        (figure(320.0, floor=330.0), Record(), "320.0 GB/s, below its floor of 330.0"),
        # What it never reached is no news.
        (figure(320.0, floor=330.0), Record(reference=325.0, since=JOINED), ""),
        (figure(360.0, "wrong data"), WAS, "wrong data; 360.0 GB/s, 364.8 when it joined"),
        (figure(None, "DCGM: memory"), WAS, "DCGM: memory"),
        # Taken back by a person as it is, until it is worse than that.
        (figure(180.1), Record(reference=364.8, accepted=182.0), ""),
        (figure(100.0), Record(reference=364.8, accepted=182.0, since=JOINED), "100.0 GB/s, 364.8 when it joined"),
        (figure(360.0, "DCGM: 3 rows"), Record(reference=364.8, accepted_broken=("DCGM: 2 rows",)), ""),
    ],
)
def test_a_slower_measurement_speaks_against_its_node(found: Measured, record: Record, words: str) -> None:
    assert against(found, record) == words


def test_a_node_keeps_its_first_sound_figure_as_its_reference() -> None:
    first = remembered(figure(364.8), Record(), 5.0)
    assert (first.reference, first.since, first.last, first.due) == (364.8, "when it was first checked", 364.8, 5.0)
    assert remembered(figure(340.0), first, 6.0).reference == 364.8
    assert remembered(figure(400.0), first, 6.0).reference == 364.8
    # Below a floor, or with wrong data, is no way to begin.
    assert remembered(figure(320.0, floor=330.0), Record(), 5.0).reference is None
    assert remembered(figure(364.8, "wrong data"), Record(), 5.0).reference is None
    assert remembered(figure(None), first, 7.0) == Record(reference=364.8, last=364.8, due=7.0)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (figure(180.0), figure(181.0), "181.0 GB/s, 364.8 when it joined"),
        (figure(180.0), figure(360.0), ""),
        # Slow once and nothing the other time is no proof; what is broken in one of them is.
        (figure(180.0), figure(None), ""),
        (figure(180.0, "wrong data"), figure(360.0), "wrong data; 360.0 GB/s, 364.8 when it joined"),
    ],
)
def test_a_node_is_judged_by_the_better_of_two_checks(one: Measured, other: Measured, words: str) -> None:
    assert against(better(one, other), WAS) == words


def test_a_record_is_read_as_it_was_kept_and_damage_is_none() -> None:
    whole = Record({"gpus": "h200:8"}, 364.8, JOINED, 180.1, ("x",), 7.0, 5.0, ("y",), ("why", 9), trying=True)
    assert read_or_default(Record, json.loads(json.dumps(asdict(whole)))) == whole
    damage: tuple[object, ...] = (None, [], {"own": 3}, {**asdict(whole), "new": 1}, {**asdict(whole), "due": "x"})
    for damaged in damage:
        assert read_or_default(Record, damaged, exact=True) == Record()


def test_another_machine_with_the_name_starts_a_new_record_and_keeps_its_drain() -> None:
    record = Record({"address": "100.64.0.1"}, 364.8, own=("why", 9))
    assert record.about({"address": "100.64.0.1"}) is record
    assert record.about({"address": "100.64.0.2"}) == Record({"address": "100.64.0.2"}, own=("why", 9))
