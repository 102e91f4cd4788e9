"""What the program does for each host does not grow with how many there are."""

from collections import Counter
from typing import Any

import pytest

from tests.unit.configs import HOSTS, RawConfig
from tests.unit.recorded import Build

"""Of Outputs a registration. The runtime waits for every one of them; they were 80 once, most of them of known values,
and 58 while it looked for more of them in each connection."""


def hosts(count: int) -> RawConfig:
    (rack,) = HOSTS["sites"]
    door = rack["hosts"][0]
    more = [
        {**door, "name": f"n{number}", "address": f"10.0.{number // 250}.{number % 250}"} for number in range(count)
    ]
    return {**HOSTS, "sites": [{**rack, "hosts": [door, *more]}]}


def test_a_script_is_put_together_once_for_all_hosts(build: Build, monkeypatch: pytest.MonkeyPatch) -> None:
    from components.steps import composition

    made = Counter[str]()
    parts = composition._Parts.__init__

    def counted(self: composition._Parts, *how: Any, **more: Any) -> None:
        made["all"] += 1
        parts(self, *how, **more)

    monkeypatch.setattr(composition._Parts, "__init__", counted)
    build(hosts(5), again=True, unknown=True)
    few = made["all"]
    build(hosts(10), again=True, unknown=True)
    assert made["all"] == 2 * few
