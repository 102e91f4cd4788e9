"""Configs of any size are read in linear time, and their problems told in a page.

Without a clock: the work is counted. bench/config_growth.py has the seconds, with what C does in them.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from components.settings.problems import MOST_KEPT, MOST_SHOWN
from stacks.config import parse
from tests.unit.configs import refused
from tests.unit.large_configs import SIZES, read


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


def test_an_error_shows_the_first_problems_and_the_number_of_the_rest(key_folder: Path) -> None:
    error = refused(parse, SIZES["bad users"][1](MOST_KEPT), base_dir=key_folder)
    title, *told, last = str(error).splitlines()
    count = int(title.split()[0])
    assert count >= 2 * MOST_KEPT
    assert len(told) == MOST_SHOWN
    assert last.strip().startswith(f"and {count - MOST_SHOWN} more")
    assert len(error.problems) == MOST_KEPT
