"""The look at the clouds before a run: lost machines, nodes that are left out, and clouds that do not answer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from stacks.http_client import ApiError
from stacks.rental.cloud import BOOTING, GONE, READY, Instance, Offer
from stacks.sites.lambda_cloud import LambdaSite
from stacks.sites.rented.model import RentedNode
from stacks.sites.rented.present import AccessDeniedError, Present, Rental, look

PLACES = (("gpu", "east"), ("gpu", "west"))


class Cloud:
    """A cloud with these machines and offers; `error` is the answer to every call."""

    title, currency = "Lambda", "USD"

    def __init__(
        self, instances: Sequence[Instance] = (), offers: Sequence[Offer] = (), error: ApiError | None = None
    ) -> None:
        self._instances, self._offers, self._error = instances, offers, error
        self.ended: list[str] = []

    def end(self, ids: Sequence[str]) -> None:
        self.ended += ids

    def instances(self) -> Sequence[Instance]:
        if self._error:
            raise self._error
        return self._instances

    def offers(self) -> Sequence[Offer]:
        return self._offers


def instance(id_: str, node: str, state: str = READY, stack: str = "burst", owner: str = "ours") -> Instance:
    tags = {"tailrack:node": node, "tailrack:stack": stack, "tailrack:owner": owner}
    return Instance(id_, state, "gpu", "east", tags=tags)


def look_at(cloud: Cloud, last: object, fewer: str = "fail", dry_run: bool = True, **how: Any) -> Present:
    """Look at a cloud. `names` are those of the site's nodes, g1 and g2 by default; `limit` is its price limit."""
    keys: dict[str, Any] = {"fewer": fewer, "base_url": "", "max_price_per_hour": how.get("limit")}
    site, names = LambdaSite.model_construct(name="cloud", kind="lambda", **keys), how.get("names", ("g1", "g2"))
    nodes = [RentedNode(False, True, name=name, site="cloud", offers=PLACES) for name in names]
    return look([site], nodes, {"lambda": "key"}, "burst", last, lambda *_arguments, **_more: cloud, dry_run=dry_run)  # type: ignore[arg-type]


RECORDED: dict[str, Any] = {"g1": {"id": "i1"}, "g2": {"id": "i2"}}


@pytest.mark.parametrize("rest", [[], [instance("i2", "g2", GONE)]])
def test_a_machine_that_has_gone_is_lost_and_named(rest: list[Instance]) -> None:
    present = look_at(Cloud([instance("i1", "g1"), *rest]), RECORDED)
    assert present.lost == {"g2": "i2"}
    assert "g2: its machine i2 is no longer at Lambda" in present.messages[0]


def test_a_loss_stays_in_the_inputs_and_the_machine_of_a_node_that_leaves_is_left_to_its_resource() -> None:
    recorded = {"g1": {"id": "i1"}, "g2": {"id": "i3", "lost": "i2"}}
    present = look_at(Cloud([instance("i1", "g1"), instance("i3", "g2")]), recorded)
    assert present == Present({"g2": "i2"})
    last = {"g1": {"id": "i1", "owner": "ours"}, "g2": {"id": "i2", "owner": "ours"}}
    cloud = Cloud([instance("i1", "g1"), instance("i2", "g2")])
    assert look_at(cloud, last, names=["g1"], dry_run=False) == Present()
    assert cloud.ended == []


def test_a_machine_with_another_address_is_named_and_stays_in_the_inputs() -> None:
    facts = {"id": "i1", "address": "192.0.2.1", "port": 34446}
    started = replace(instance("i1", "g1"), address="192.0.2.1", port=41000)
    present = look_at(Cloud([started]), {"g1": facts}, names=["g1"])
    assert present.moved == {"g1": "192.0.2.1:41000"}
    assert "g1: its machine i1 has another address now, 192.0.2.1:41000" in present.messages[0]
    for state in (BOOTING, GONE):
        assert look_at(Cloud([replace(started, state=state)]), {"g1": facts}, names=["g1"]).moved == {}
    facts |= {"port": 41000, "moved": "192.0.2.1:41000"}
    assert look_at(Cloud([started]), {"g1": facts}, names=["g1"]) == Present(moved=present.moved)


def test_a_cloud_that_does_not_answer_has_lost_nothing_and_leaves_no_node_out() -> None:
    recorded = {"g1": {"id": "i1", "lost": "i0"}}
    present = look_at(Cloud(error=ApiError("GET /instances: 503", 503)), recorded, "warn")
    assert (present.lost, present.left_out) == ({"g1": "i0"}, frozenset())
    assert "does not say which machines it has" in present.messages[0]


@pytest.mark.parametrize("status", [401, 403])
def test_a_rejected_key_stops_the_run_with_the_command(status: int) -> None:
    with pytest.raises(AccessDeniedError, match=r"nothing was changed.*tailrack:api_keys\.lambda"):
        look_at(Cloud(error=ApiError("no", status)), None)


def test_a_site_that_may_have_fewer_leaves_out_nodes_without_a_machine_and_without_capacity() -> None:
    present = look_at(Cloud([instance("i1", "g1")], [Offer("gpu", "north")]), {}, "warn")
    assert present.left_out == {"g2"}
    assert "g2 is left out: Lambda has no capacity now (gpu in east, gpu in west)" in present.messages


def test_a_renamed_stack_leaves_out_no_machine_of_its_last_run() -> None:
    cloud = Cloud([instance("i1", "g1", stack="former")])
    assert look_at(cloud, RECORDED, "warn", names=["g1"]).left_out == frozenset()


def test_a_preview_names_the_price_of_the_place_that_each_new_node_would_get() -> None:
    offers = [Offer("gpu", "east", 2.5, available=False), Offer("gpu", "west", 3.25)]
    present = look_at(Cloud([instance("i1", "g1")], offers), RECORDED, names=["g1", "g2", "g3"])
    assert present.prices == ("site cloud: Lambda has gpu in west now for g2, g3: 3.25 USD an hour each",)
    assert look_at(Cloud([], offers), {}, dry_run=False).prices == ()


def test_a_place_above_the_price_limit_or_without_a_price_is_no_place() -> None:
    offers = [Offer("gpu", "east"), Offer("gpu", "west", 3.25)]
    present = look_at(Cloud([], offers), {}, names=["g1"], limit=3)
    assert present.prices == ("site cloud: Lambda has no capacity for at most max_price_per_hour now for g1",)
    assert look_at(Cloud([], offers), {}, "warn", names=["g1"], limit=3).left_out == {"g1"}
    assert look_at(Cloud([], offers), {}, "warn", names=["g1"], limit=3.25).left_out == frozenset()


def test_a_price_in_another_currency_than_the_stacks_is_not_used() -> None:
    dollars = {"price_per_hour": 1.29, "currency": "USD"}
    assert Rental("key", currency="USD").price(dollars) == "1.29 USD"
    assert Rental("key", currency="EUR").price(dollars) == ""
    assert Rental("key", currency="USD").price({**dollars, "price_per_hour": None}) == ""


def test_a_machine_of_a_killed_run_that_no_node_needs_is_ended_by_an_up_and_named_by_a_preview() -> None:
    last = {"g1": {"id": "i1", "owner": "ours"}}
    cloud = Cloud([instance("i1", "g1"), instance("i9", "g9"), instance("i8", "g8", owner="theirs")])
    present = look_at(cloud, last, names=["g1"])
    assert "g9: its machine i9 at Lambda was rented by a run that was killed" in present.messages[0]
    assert cloud.ended == []
    look_at(cloud, last, names=["g1"], dry_run=False)
    assert cloud.ended == ["i9"]
