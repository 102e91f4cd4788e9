"""The nodes and sites of a stack after the look at its clouds, and the output `rented`."""

import asyncio
from pathlib import Path
from typing import Any

import pulumi
import pytest

from stacks import look_at_clouds as module
from stacks.config import PoolConfig, parse
from stacks.look_at_clouds import Rentals, rentals, rented_output
from stacks.read_outputs import StackOutputs
from stacks.rental_requests import LEFT_OUT
from stacks.sites.rented.present import AccessDeniedError, Present
from tests.unit.stacks.test_config_rented import KEY, SECRET, raw

LAST = StackOutputs({"rented": {"g1": {"id": "i1"}}}, frozenset())


def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, answer: Present | Exception) -> Rentals:
    def look(sites: Any, nodes: Any, keys: Any, stack: str, last: object, *, dry_run: bool) -> Present:
        assert (keys, stack, last) == ({"lambda": KEY}, "burst", {"g1": {"id": "i1"}})
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(module, "look", look)
    warnings = list[str]()
    monkeypatch.setattr(pulumi.log, "warn", warnings.append)
    config = parse(raw(), PoolConfig, base_dir=folder, secret_keys=SECRET)
    found = asyncio.run(rentals(config, "burst", LAST))
    assert warnings == list(answer.messages if isinstance(answer, Present) else ())
    return found


def test_a_node_that_is_left_out_is_no_node_of_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked(folder, monkeypatch, Present(left_out=frozenset({"g2"}), messages=("g2 is left out",)))
    assert [node.name for node in found.nodes] == ["g1"]
    assert [site.name for site in found.sites] == ["burst"]


def test_a_node_without_a_machine_is_left_out_of_the_second_run_if_the_site_may_have_fewer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEFT_OUT, "g2,other")
    monkeypatch.setattr(module, "look", lambda *_, **__: Present())
    for fewer, names in (("warn", ["g1"]), ("fail", ["g1", "g2"])):
        config = parse(raw(fewer=fewer), PoolConfig, base_dir=folder, secret_keys=SECRET)
        assert [node.name for node in asyncio.run(rentals(config, "burst", LAST)).nodes] == names


def test_without_any_node_or_with_a_rejected_key_the_run_stops(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(pulumi.RunError, match="no cloud has a machine for any node now; nothing was changed"):
        asked(folder, monkeypatch, Present(left_out=frozenset({"g1", "g2"})))
    with pytest.raises(pulumi.RunError, match="rejected"):
        asked(folder, monkeypatch, AccessDeniedError("rejected"))


def test_a_machine_that_failed_hides_neither_the_others_nor_its_own_loss_in_the_output() -> None:
    async def output() -> object:
        failed = pulumi.Output[Any](_done(set[pulumi.Resource]()), _done(None), _done(False), _done(False))
        facts = {"g1": pulumi.Output.from_input({"id": "i1"}), "g2": failed}
        return await rented_output(facts, last)["rented"].future()

    last = StackOutputs({}, frozenset())
    assert asyncio.run(output()) == {"g1": {"id": "i1"}}
    last = StackOutputs({"rented": {"g1": {"id": "i0"}, "g2": {"id": "i2"}}}, frozenset())
    assert asyncio.run(output()) == {"g1": {"id": "i1"}, "g2": {"id": "i2"}}


def _done(value: Any) -> Any:
    future = asyncio.get_running_loop().create_future()
    future.set_result(value)
    return future


def test_an_elastic_pool_keeps_its_sites_without_any_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "look", lambda *_, **__: Present())
    elastic = {**raw(), "elastic": {"cpus": 26, "memory_gb": 221}}
    config = parse(elastic, PoolConfig, base_dir=folder, secret_keys=SECRET)
    found = asyncio.run(rentals(config, "burst", LAST, []))
    assert (list(found.nodes), [site.name for site in found.sites]) == ([], ["burst"])
