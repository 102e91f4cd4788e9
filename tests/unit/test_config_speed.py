"""Configs of any size are read in linear time, and their problems told in a page."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from components.settings.problems import MOST_KEPT, MOST_TOLD
from stacks.config import ConfigError, parse
from stacks.yaml_file import read_yaml
from tests.unit.configs import HOSTS, LAB

RATIO = 2.9  # of the time for twice as much: 2 where it is linear, 4 where it is quadratic
LIMIT = 30.0  # seconds; quadratic readers took minutes


def lab(**more: Any) -> dict[str, Any]:
    return {**LAB, **more}


def site(number: int, **more: Any) -> dict[str, Any]:
    return {"name": f"s{number}", "kind": "lab", "pools": [{"name": f"p{number}x"}], **more}


def hosts(count: int) -> dict[str, Any]:
    (rack,) = HOSTS["sites"]
    door = rack["hosts"][0]
    more = [{**door, "name": f"n{n}", "address": f"10.0.{n // 250}.{n % 250}"} for n in range(count)]
    return {**HOSTS, "sites": [{**rack, "hosts": [door, *more]}]}


SIZES: dict[str, tuple[int, Callable[[int], dict[str, Any]]]] = {
    "hosts": (3000, hosts),
    "pools": (3000, lambda n: lab(sites=[{**site(0), "pools": [{"name": f"p{i}x"} for i in range(n)]}])),
    "nodes of large pools": (
        60_000,
        lambda n: lab(sites=[{**site(0), "pools": [{"name": f"p{i}x", "count": 1000} for i in range(n // 1000)]}]),
    ),
    "users": (20_000, lambda n: lab(users=[{"name": f"u{i}", "uid": 1000 + i} for i in range(n)])),
    "bad users": (20_000, lambda n: lab(users=[{"name": f"u{i}", "uid": "x", "gdi": 1} for i in range(n)])),
    "sites apart": (1500, lambda n: lab(sites=[site(i, subnet=f"10.{i // 256}.{i % 256}.0/24") for i in range(n)])),
    "sites that overlap": (1500, lambda n: lab(sites=[site(i, subnet="10.0.0.0/8") for i in range(n)])),
    "partitions of unknown sites": (
        3000,
        lambda n: lab(slurm={"partitions": [{"name": f"x{i}", "sites": [f"q{i}"]} for i in range(n)]}),
    ),
    "unknown settings": (6000, lambda n: lab(slurm={"settings": {f"KillWaiu{i}": 1 for i in range(n)}})),
    "unknown floors": (3000, lambda n: lab(validation={"floors_gb_per_s": {f"sx{i}": 1 for i in range(n)}})),
}


def seconds(raw: dict[str, Any], folder: Path) -> float:
    """CPU time for a config, which other work on this machine does not stretch."""
    begun = time.process_time()
    with suppress(ConfigError):
        parse(raw, base_dir=folder, secret_keys=frozenset({"tailnet"})).nodes()
    return time.process_time() - begun


@pytest.mark.parametrize("what", SIZES)
def test_twice_as_much_takes_twice_as_long(what: str, key_folder: Path) -> None:
    count, config = SIZES[what]
    once, twice = (min(seconds(config(n), key_folder) for _ in range(2)) for n in (count, 2 * count))
    assert twice < LIMIT
    assert twice < RATIO * once + 0.2


def test_the_first_problems_are_told_and_the_number_of_the_rest(key_folder: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(SIZES["bad users"][1](MOST_KEPT), base_dir=key_folder)
    title, *lines, last = str(caught.value).splitlines()
    count = int(title.split()[0])
    assert count >= 2 * MOST_KEPT
    assert len(lines) == MOST_TOLD
    assert last.strip().startswith(f"and {count - MOST_TOLD} more")
    assert len(caught.value.problems) == MOST_KEPT


def test_more_nodes_than_slurm_knows_are_refused_without_counting_them_all(key_folder: Path) -> None:
    pools = [{"name": f"p{number}x", "count": 1000} for number in range(5000)]
    with pytest.raises(ConfigError, match="more than 65536 nodes"):
        parse(lab(sites=[{**site(0), "pools": pools}]), base_dir=key_folder)


def test_a_megabyte_of_yaml_is_read_in_linear_time(tmp_path: Path) -> None:
    def read(count: int) -> float:
        path = tmp_path / "Pulumi.trial.yaml"
        path.write_text("users:\n" + "".join(f"- {{name: u{n}, uid: {n}}}\n" for n in range(count)))
        begun = time.process_time()
        assert len(read_yaml(path)["users"]) == count
        return time.process_time() - begun

    once, twice = read(20_000), read(40_000)
    assert twice < LIMIT
    assert twice < RATIO * once + 0.2
