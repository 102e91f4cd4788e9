"""A machine is rented once, whatever the cloud answers; nothing stays rented that no one uses."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stacks.http_client import ApiError
from stacks.rental import account as account_program
from stacks.rental import api as api_module
from stacks.rental import digitalocean, lambda_cloud, runpod
from stacks.rental import machine as machine_program
from stacks.rental.answers import amount, machines
from stacks.rental.cloud import BOOTING, Cloud, Offer
from stacks.rental.clouds import account
from stacks.rental.machine import Rental, RentalError
from tests.played_cloud.server import Fault, PlayedCloud
from tests.rented_doors import API_KEY, EAST, OTHER_TYPE, READ_ONLY_KEY, TYPE, WEST, Doors, played_cloud

OWNER = "0123456789ab"
# The cloud of the running test, and its calls.
CALLS: dict[str, Any] = {}
_CALLS: dict[str, dict[str, Any]] = {
    "lambda": {
        "cloud": "lambda", "launch": "POST /launch", "list": "GET /instances", "types": "GET /instance-types",
        "quota": "Quota exceeded", "end": "POST /terminate", "id": lambda machine: machine.id,
    },
    "digitalocean": {
        "cloud": "digitalocean", "launch": "POST /droplets", "list": "GET /droplets", "types": "GET /sizes",
        "quota": "exceed your droplet limit", "end": "DELETE ", "id": lambda machine: str(machine.number),
    },
    "runpod": {
        "cloud": "runpod", "launch": "POST /pods", "list": "GET /pods", "types": "GET /catalog/gpus",
        "quota": "Insufficient balance", "end": "DELETE ", "id": lambda machine: machine.id,
    },
}  # fmt: skip
BOTH_PLACES = [{"type": TYPE, "region": EAST}, {"type": TYPE, "region": WEST}]
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHRlc3Q="


@pytest.fixture(params=sorted(_CALLS))
def played(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[PlayedCloud]:
    """A played cloud that answers in the shape of one of the APIs."""
    CALLS.clear()
    CALLS.update(_CALLS[request.param])
    for module in (api_module, machine_program):
        monkeypatch.setattr(module, "FIRST_PAUSE", 0.01)
        monkeypatch.setattr(module, "LONGEST_PAUSE", 0.05)
    monkeypatch.setattr(machine_program, "LIST_DELAY", 0.01)
    for program in (account_program, machine_program):
        monkeypatch.setattr(program, "LAUNCHES", tmp_path)
    monkeypatch.setattr(account_program, "SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(account_program, "LONGEST_PAUSE", 0.05)
    with played_cloud() as cloud:
        yield cloud


def client(played: PlayedCloud, key: str = API_KEY, patience: float = 5) -> Cloud:
    return account(CALLS["cloud"], played.url_of(CALLS["cloud"]), key, patience=patience)


def request(played: PlayedCloud, **more: Any) -> dict[str, Any]:
    return {
        **{"cloud": CALLS["cloud"], "base_url": played.url_of(CALLS["cloud"]), "api_key": API_KEY},
        **{"owner": OWNER, "stack": "burst", "site": "east", "node": "g1", "name": "g1", "tags": {"team": "vision"}},
        "offers": [{"type": TYPE, "region": EAST}],
        "key": client(played).add_key(f"tailrack-{OWNER}", PUBLIC_KEY),
        "user_data": "#cloud-config\n{}\n",
        "image": "" if CALLS["cloud"] == "lambda" else "ubuntu-24-04-x64",
        "options": {"disk_gb": 50, "volume_gb": 100},
        "boot_seconds": 2,
        **more,
    }


def rental(played: PlayedCloud, **more: Any) -> Rental:
    return Rental(client(played), request(played, **more))


def refused(one: Rental) -> str:
    with pytest.raises(RentalError) as error:
        one.up()
    return f"{error.value}; {error.value.next_step}"


def test_a_machine_is_rented_with_its_tags_price_and_key(played: PlayedCloud) -> None:
    facts = rental(played).up()
    (machine,) = played.account.bill()
    assert facts["id"] in (machine.id, str(machine.number))
    assert (facts["address"], facts["price_per_hour"]) == (machine.address, 1.29)
    assert facts["tried"] == []
    assert machine.tags["team"] == "vision"
    assert machine.tags["tailrack:owner"] == OWNER
    assert (machine.tags["tailrack:stack"], machine.tags["tailrack:node"]) == ("burst", "g1")
    assert machine.public_key == PUBLIC_KEY


def test_a_later_run_finds_its_machine_and_takes_none_of_another_owner_or_node(played: PlayedCloud) -> None:
    ids = [rental(played, **more).up()["id"] for more in ({}, {}, {"owner": "another"}, {"node": "g2"})]
    assert ids[0] == ids[1]
    assert len({*ids}) == played.account.launched == 3


def test_no_later_run_ends_a_machine_in_use_that_does_not_answer(played: PlayedCloud) -> None:
    own = rental(played).up()["id"]
    again = Rental(client(played), request(played, boot_seconds=0), own, lambda *_: False)
    assert again.up()["id"] == own
    played.account.bill()[0].state = "booting"
    assert "start it in the cloud's console" in refused(again)
    assert len(played.account.bill()) == played.account.launched == 1


def test_the_next_place_is_tried_when_there_is_no_capacity_and_the_outcome_lists_it(played: PlayedCloud) -> None:
    played.account.capacity = {(OTHER_TYPE, WEST): 1}
    offers = [{"type": TYPE, "region": EAST}, {"type": "gone", "region": EAST}, {"type": OTHER_TYPE, "region": WEST}]
    facts = rental(played, offers=offers).up()
    assert (facts["type"], facts["region"], facts["price_per_hour"]) == (OTHER_TYPE, WEST, 23.92)
    assert facts["tried"] == [f"{TYPE} in {EAST}: no capacity", f"gone in {EAST}: there is no such type"]


def test_no_capacity_anywhere_is_one_error_that_names_every_place(played: PlayedCloud) -> None:
    offers = client(played).offers()
    played.account.capacity = {}
    text = refused(rental(played, offers=BOTH_PLACES))
    assert f"{TYPE} in {EAST}: no capacity; {TYPE} in {WEST}: no capacity" in text
    assert "nothing is rented" in text
    assert played.account.launched == 0
    # The same when the capacity went between the list and the launch.
    one = rental(played)
    one.cloud.offers = lambda: offers  # type: ignore[method-assign]
    assert f"{TYPE} in {EAST}: no capacity" in refused(one)


def test_a_quota_that_is_reached_halfway_fails_the_other_nodes_with_its_reason_and_remedy(played: PlayedCloud) -> None:
    played.account.faults.quota = 2
    for node in ("g1", "g2"):
        rental(played, node=node).up()
    remedy = "settle the account's payment" if CALLS["cloud"] == "runpod" else "ask the cloud for a higher quota"
    for node in ("g3", "g4"):
        text = refused(rental(played, node=node))
        assert [part for part in (CALLS["quota"], "nothing is rented for it", remedy) if part not in text] == []
    assert sorted(machine.tags["tailrack:node"] for machine in played.account.bill()) == ["g1", "g2"]


@pytest.mark.parametrize(
    ("status", "sentence", "remedy"),
    [
        (422, "You specified an invalid image for Droplet creation.", "correct `image` of the site"),
        (422, "This size is currently restricted", "correct `type` of the site"),
        (422, "Image is not available in the selected region", "correct `image` of the site"),
        (402, "payment_required for this account", "settle the account's payment in the cloud's console"),
        (404, "no such thing", "correct `image`, `type`, `region` or `tags` of the site"),
    ],
)
def test_a_refused_order_is_named_with_its_key(played: PlayedCloud, status: int, sentence: str, remedy: str) -> None:
    body = {"error": {"code": "refused", "message": f"{sentence} {API_KEY}"}}
    played.faults.append(Fault(CALLS["launch"], status, times=2, body=body))
    one = rental(played, offers=BOTH_PLACES)
    one.cloud.offers = lambda: [Offer(TYPE, EAST), Offer(TYPE, WEST)]  # type: ignore[method-assign]
    with pytest.raises(RentalError) as error:
        one.up()
    assert all(f"{TYPE} in {region}: POST " in str(error.value) for region in (EAST, WEST))
    assert str(error.value).count(sentence) == 2
    assert "no capacity" not in str(error.value)
    assert API_KEY not in str(error.value)
    assert error.value.next_step.startswith(remedy)


@pytest.mark.parametrize("body", [{"data": None}, {"droplet": {}}, [1]])
def test_an_accepted_order_without_an_id_is_looked_up_and_never_repeated(played: PlayedCloud, body: object) -> None:
    played.faults.append(Fault(CALLS["launch"], 201, done=True, body=body))
    assert rental(played).up()["id"] == CALLS["id"](played.account.bill()[0])
    assert played.account.launched == 1
    played.faults.append(Fault(CALLS["launch"], 201, times=9, body=body))
    with pytest.raises(RentalError, match="lists no machine with its tags") as error:
        rental(played, node="g2").up()
    assert "look for g1 in the cloud's console" in error.value.next_step
    assert played.account.launched == 1


@pytest.mark.parametrize("state", ["restarting", "", None])
def test_a_machine_in_an_unknown_state_still_costs_money(state: object) -> None:
    for module in (lambda_cloud, digitalocean, runpod):
        assert module._instance({"id": "1", "status": state}).state == BOOTING


def test_an_answer_that_names_no_machine_or_no_price_is_an_error_or_unknown() -> None:
    for answer in ({"data": None}, {"data": [None]}, {"data": [{"status": "active"}]}):
        with pytest.raises(ApiError, match="an answer of the cloud"):
            machines(answer, "data")
    unknown = (-1, True, None, "2", float("inf"), float("nan"))
    assert [amount(value) for value in (2, 0.5, *unknown)] == [2, 0.5, *[None] * len(unknown)]


def test_a_machine_that_the_list_lacks_right_after_a_kill_is_ended(played: PlayedCloud, tmp_path: Path) -> None:
    def killed(address: str, port: int) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Rental(client(played), request(played), answers=killed).up()
    assert [launch.name for launch in (tmp_path / OWNER).iterdir()] == ["g1"]
    cloud = client(played)
    lists: Iterator[list[Any]] = iter([[], []])
    full = cloud.instances
    cloud.instances = lambda: next(lists, None) or full()  # type: ignore[method-assign]
    assert account_program.down(cloud, OWNER) == 1
    assert played.account.bill() == []


def test_an_accounts_end_waits_for_no_known_launch(played: PlayedCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    rental(played).up()
    monkeypatch.setattr(account_program, "SETTLE_SECONDS", 3600)
    assert account_program.down(client(played), OWNER) == 1


def test_a_place_that_costs_more_than_the_limit_is_passed_over_with_its_price(played: PlayedCloud) -> None:
    played.account.capacity[OTHER_TYPE, EAST] = 1
    offers = [{"type": OTHER_TYPE, "region": EAST}, {"type": TYPE, "region": EAST}]
    facts = rental(played, offers=offers, max_price_per_hour=1.29).up()
    assert facts["type"] == TYPE
    assert facts["tried"] == [f"{OTHER_TYPE} in {EAST}: 23.92 USD an hour is more than max_price_per_hour, 1.29"]
    text = refused(rental(played, node="g2", offers=offers, max_price_per_hour=1))
    assert f"{TYPE} in {EAST}: 1.29 USD an hour is more than max_price_per_hour, 1;" in text
    assert "or raise max_price_per_hour" in text


@pytest.mark.parametrize("status", [500, 503, 0])
def test_an_unclear_answer_to_a_launch_that_was_done_rents_no_second_machine(played: PlayedCloud, status: int) -> None:
    played.faults.append(Fault(CALLS["launch"], status, done=True))
    assert rental(played).up()["address"] == played.account.bill()[0].address
    assert played.account.launched == 1


def test_a_launch_that_came_too_soon_waits_as_the_cloud_says(played: PlayedCloud) -> None:
    played.account.faults.launch_seconds = 1.0
    rental(played).up()
    began = time.monotonic()
    rental(played, node="g2").up()
    assert time.monotonic() - began > 0.5
    assert played.account.launched == 2


def test_a_program_rents_no_machine_if_its_engine_dies_during_a_cloud_delay(
    played: PlayedCloud, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.faults.append(Fault(CALLS["launch"], 429, times=1000, retry_after=0))
    asked = iter([True, True, True])
    monkeypatch.setattr(machine_program, "QUEUE_PAUSE", 0)
    one = Rental(client(played), request(played), wanted=lambda: next(asked, False))
    assert "the run that wanted the machine has ended" in refused(one)
    assert played.account.launched == 0


def test_a_machine_that_never_boots_is_given_back_and_the_next_place_tried(played: PlayedCloud) -> None:
    played.account.capacity[TYPE, WEST] = 1
    played.account.faults.never_boots = 1
    facts = rental(played, offers=BOTH_PLACES, boot_seconds=0.5).up()
    assert facts["region"] == WEST
    assert "did not boot within" in facts["tried"][0]
    assert "so its rent was ended (about 0.00 USD)" in facts["tried"][0]
    assert [machine.region for machine in played.account.bill()] == [WEST]


def test_a_machine_that_is_active_without_ssh_is_given_back(played: PlayedCloud) -> None:
    doors = played.account._machines
    assert isinstance(doors, Doors)
    doors.silent = 1
    assert "did not answer SSH" in refused(rental(played, boot_seconds=0.5))
    assert played.account.bill() == []


@pytest.mark.parametrize("status", [403, 500])
def test_a_warning_names_a_machine_that_the_cloud_still_charges_for(played: PlayedCloud, status: int) -> None:
    played.account.faults.never_boots = 1
    played.faults.append(Fault(CALLS["end"], status, times=1000))
    one = Rental(client(played, patience=0.2), request(played, boot_seconds=0.3))
    text = refused(one)
    (machine,) = played.account.bill()
    assert f"did not end the rent of {CALLS['id'](machine)}, which costs money until it ends" in text
    assert ("give the API key the right to end machines" in text) == (status == 403)
    assert "end it in the cloud's console, then run the same command again" in text
    with pytest.raises(RentalError, match=f"did not end the rent of {CALLS['id'](machine)}"):
        rental(played).down()
    # A later run without the fault ends it.
    played.faults.clear()
    rental(played).down()
    assert played.account.bill() == []


def test_down_ends_the_nodes_machine_alone_waits_for_errors_and_may_run_twice(played: PlayedCloud) -> None:
    rental(played).up()
    rental(played, node="g2").up()
    played.faults += [Fault(CALLS["end"], 429, retry_after=0), Fault(CALLS["end"], 500), Fault(CALLS["list"], 429)]
    for _ in range(2):
        rental(played).down()
        assert [machine.tags["tailrack:node"] for machine in played.account.bill()] == ["g2"]


def test_another_machine_is_rented_for_one_that_was_taken_back_while_in_use(played: PlayedCloud) -> None:
    first = rental(played).up()
    played.account.end(played.account.bill()[0].id, taken_back=True)
    second = rental(played, lost=first["id"]).up()
    assert second["id"] != first["id"]
    assert len(played.account.bill()) == 1


def test_a_machine_that_the_cloud_takes_back_while_it_boots_is_replaced_by_the_next(played: PlayedCloud) -> None:
    played.account.capacity[TYPE, WEST] = 1
    played.account.faults.never_boots = 1

    def take_back(machine: Any) -> None:
        played.account.on_launch = lambda other: None
        played.account.end(machine.id, taken_back=True)

    played.account.on_launch = take_back
    facts = rental(played, offers=BOTH_PLACES).up()
    assert facts["region"] == WEST
    assert "took it back" in facts["tried"][0]


def test_a_machine_that_its_pool_no_longer_lists_is_neither_kept_nor_ended_silently(played: PlayedCloud) -> None:
    rental(played).up()
    assert "no longer lists" in refused(rental(played, offers=[{"type": OTHER_TYPE, "region": EAST}]))
    assert len(played.account.bill()) == 1


def test_the_owner_stays_the_same_when_the_account_is_prepared_again(played: PlayedCloud) -> None:
    first = account_program.up(client(played), PUBLIC_KEY, {})
    assert account_program.up(client(played), PUBLIC_KEY, first) == first
    assert len(played.account.keys) <= 1  # a cloud whose machines bring the key has none


def test_the_account_ends_machines_that_no_state_has_and_its_own_key(played: PlayedCloud) -> None:
    rental(played).up()
    rental(played, node="g2", owner="another").up()
    played.account.keys["7"] = ("laptop", "ssh-ed25519 AAAAb3RoZXI=")
    assert account_program.down(client(played), OWNER) == 1
    assert [machine.tags["tailrack:owner"] for machine in played.account.bill()] == ["another"]
    assert [name for name, _ in played.account.keys.values()] == ["laptop"]


@pytest.mark.parametrize("key", ["wrong-key", READ_ONLY_KEY, API_KEY])
def test_the_program_prints_json_or_errors(played: PlayedCloud, capsys: pytest.CaptureFixture[str], key: str) -> None:
    status = machine_program.main("up", json.dumps(request(played, api_key=key)))
    out, err = capsys.readouterr()
    assert key not in out + err
    if key == API_KEY:
        assert (status, err, json.loads(out)["type"]) == (0, "", TYPE)
        return
    assert (status, out, played.account.launched) == (1, "", 0)
    assert "does not accept the API key" in err
    assert f"pulumi config set --path --secret tailrack:api_keys.{CALLS['cloud']}" in err
    assert ("give the key the right to this call" in err) == (key == READ_ONLY_KEY)


def test_an_answer_without_a_list_does_not_mean_that_there_are_no_machines(played: PlayedCloud) -> None:
    rental(played).up()
    played.faults.append(Fault(CALLS["list"], 200, times=1000))
    with pytest.raises(ApiError, match="has no list"):
        rental(played).down()
    assert len(played.account.bill()) == 1


def test_a_redirect_takes_the_key_nowhere(played: PlayedCloud) -> None:
    played.faults.append(Fault(CALLS["list"], 307, times=1000))
    with pytest.raises(ApiError, match="307"):
        client(played, patience=0.2).instances()
