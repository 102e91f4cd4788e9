"""Configs of any size, each of which makes another check walk over everything: for the tests, and for bench/."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stacks.config import ConfigError, parse
from tests.unit.configs import HOSTS, LAB, RawConfig


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


def yaml_of(number: int) -> str:
    """A file of that many users."""
    return "users:\n" + "".join(f"- {{name: u{i}, uid: {i}}}\n" for i in range(number))
