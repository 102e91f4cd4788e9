"""Configs of any size are read in linear time, and their problems told in a page.

Without a clock: the work is counted.
"""

import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from components.settings.problems import MOST_KEPT
from stacks.config import ConfigError, parse
from tests.unit.configs import HOSTS, LAB, RawConfig, refused


def lab(**more: object) -> RawConfig:
    return {**LAB, **more}


def site(number: int, **more: object) -> RawConfig:
    return {"name": f"s{number}", "kind": "lab", "pools": [{"name": f"p{number}x"}], **more}


def pools(number: int, **more: object) -> RawConfig:
    return lab(sites=[site(0, pools=[{"name": f"p{i}x", **more} for i in range(number)])])


def hosts(number: int) -> RawConfig:
    (rack,) = HOSTS["sites"]
    door = rack["hosts"][0]
    more = [{**door, "name": f"n{i}", "address": f"10.{i // 62500}.{i // 250 % 250}.{i % 250}"} for i in range(number)]
    return {**HOSTS, "sites": [{**rack, "hosts": [door, *more]}]}


SIZES: dict[str, tuple[int, Callable[[int], RawConfig]]] = {
    "hosts": (200, hosts),
    "pools": (200, pools),
    "nodes of large pools": (3000, lambda n: pools(n // 1000, count=1000)),
    "users": (700, lambda n: lab(users=[{"name": f"u{i}", "uid": 1000 + i} for i in range(n)])),
    "bad users": (700, lambda n: lab(users=[{"name": f"u{i}", "uid": "x", "gdi": 1} for i in range(n)])),
    "sites apart": (200, lambda n: lab(sites=[site(i, subnet=f"10.{i // 256}.{i % 256}.0/24") for i in range(n)])),
    "sites that overlap": (200, lambda n: lab(sites=[site(i, subnet="10.0.0.0/8") for i in range(n)])),
    "partitions of unknown sites": (
        200,
        lambda n: lab(slurm={"partitions": [{"name": f"x{i}", "sites": [f"q{i}"]} for i in range(n)]}),
    ),
    "unknown settings": (400, lambda n: lab(slurm={"settings": {f"KillWaiu{i}": 1 for i in range(n)}})),
    "unknown floors": (200, lambda n: lab(validation={"floors_gb_per_s": {f"sx{i}": 1 for i in range(n)}})),
}
"""By what there is more of: how many, and the config with any number of them."""


def read(raw: RawConfig, folder: Path) -> None:
    """Read a config as far as its nodes, whatever is wrong with it. folder   has the key of `hosts`"""
    with suppress(ConfigError):
        parse(raw, base_dir=folder, secret_keys=frozenset({"tailnet"})).nodes()


def lines(done: Callable[[], object]) -> int:
    """How many lines of Python are executed, each turn of a loop and each call and return among them."""
    count = 0

    def step(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += 1
        return step

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # what earlier tests left would be taken away here, with lines of its own
    sys.settrace(step)
    try:
        done()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return count


@pytest.mark.parametrize("what", SIZES)
def test_twice_as_much_takes_twice_the_work(what: str, key_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Each problem that is kept takes long, as each has a remedy: they would be nearly all of the work.
    monkeypatch.setattr("components.settings.problems.MOST_KEPT", 50)
    count, config = SIZES[what]

    def work(times: int) -> int:
        raw = config(count * times)
        return lines(lambda: read(raw, key_folder))

    work(1)  # what is kept from the first time on costs nothing later
    once, twice, thrice = (work(times) for times in (1, 2, 3))
    # Each third of the things costs as much as the other, 5/3 as much where the work is quadratic.
    assert thrice - twice < 1.1 * (twice - once), (once, twice, thrice)


def test_an_error_shows_the_first_of_equal_problems_and_the_number_of_the_rest(key_folder: Path) -> None:
    error = refused(parse, SIZES["bad users"][1](MOST_KEPT), base_dir=key_folder)
    title, told, _, last = str(error).splitlines()
    count = int(title.split()[0])
    assert count >= 2 * MOST_KEPT
    assert told.startswith("  tailrack:users[0].uid (and 499 more like it): ")
    assert last.strip().startswith(f"and {count - MOST_KEPT} more")
    assert len(error.problems) == MOST_KEPT
