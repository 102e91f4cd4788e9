"""The program that takes a machine from the tailnet's list, against the FAKE of Tailscale's API."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from stacks.tailnet.device import main
from tests import fake_tailscale
from tests.fake_tailscale import ACCESS, API_KEY, CLIENT, CLIENT_SECRET, TOKEN, FakeTailscale

Capture = pytest.CaptureFixture[str]
SECRETS = (API_KEY, CLIENT_SECRET, TOKEN, ACCESS)


@pytest.fixture
def fake() -> Iterator[FakeTailscale]:
    with fake_tailscale.serve() as served:
        yield served
        assert served.wrong == []


def asked(fake: FakeTailscale, **credentials: str) -> str:
    told: dict[str, Any] = {"name": "b1", "address": "100.64.0.1", "tag": "tag:cluster"}
    told |= {"base_url": fake.url, "organization": "-", "credentials": credentials or {"api_key": API_KEY}}
    return json.dumps(told)


@pytest.mark.parametrize(
    "credentials",
    [
        {"api_key": API_KEY},
        {"oauth_client_id": CLIENT, "oauth_client_secret": CLIENT_SECRET},
        {"oauth_client_id": CLIENT, "identity_token": TOKEN},
    ],
)
def test_a_machine_goes_and_no_other_one(fake: FakeTailscale, credentials: dict[str, str], capsys: Capture) -> None:
    fake.add_device("b1", "100.64.0.1")
    others = [
        fake.add_device("b1-1", "100.64.0.3"),  # a name that was taken
        fake.add_device("b1", "100.64.0.2"),  # another one of its name
        fake.add_device("b1", "100.64.0.1", tag="tag:laptops"),
        fake.add_device("b11", "100.64.0.1"),
    ]
    assert main(asked(fake, **credentials)) == 0
    assert [device["nodeId"] for device in fake.devices] == others
    assert capsys.readouterr().out == "removed 1, kept 0 connected\n"


@pytest.mark.parametrize(
    ("credentials", "said"),
    [
        ({"api_key": "tskey-api-old"}, "GET /api/v2/tailnet/-/devices: 401 the fake knows no such credentials"),
        ({"oauth_client_id": CLIENT, "oauth_client_secret": "x"}, "POST /api/v2/oauth/token: 401 the fake knows no"),
        ({"oauth_client_id": CLIENT, "audience": "x"}, "only available in a workflow on GitHub"),
    ],
)
def test_a_refusal_shows_the_remedy_and_no_secret(
    fake: FakeTailscale, credentials: dict[str, str], said: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ACTIONS_ID_TOKEN_REQUEST_URL", raising=False)
    assert main(asked(fake, **credentials)) == 1
    told = capsys.readouterr()
    assert said in told.err
    assert "next: set credentials for the API (scope devices:core), or remove the machine" in told.err
    for secret in (*SECRETS, "tskey-api-old"):
        assert secret not in told.err + told.out


def test_a_silent_server_gives_one_sentence(capsys: Capture) -> None:
    with fake_tailscale.serve() as gone:
        text = asked(gone)
    assert main(text) == 1
    assert "no readable answer (Connection refused)" in capsys.readouterr().err


def test_on_github_the_token_is_asked_for_there(fake: FakeTailscale, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.add_device("b1", "100.64.0.1")
    answered = fake.answer

    def answer(method: str, path: str, headers: Any, body: bytes) -> tuple[int, Any]:
        if path.startswith("/github?"):
            assert path == "/github?v=1&audience=api.tailscale.com%2Fk"
            assert headers["Authorization"] == "Bearer of-the-workflow"
            return 200, {"value": TOKEN}
        return answered(method, path, headers, body)

    monkeypatch.setattr(fake, "answer", answer)
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"{fake.url}/github?v=1")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "of-the-workflow")
    assert main(asked(fake, oauth_client_id=CLIENT, audience="api.tailscale.com/k")) == 0
    assert fake.devices == []


def test_a_machine_that_works_stays_and_one_that_is_logging_out_is_waited_for(
    fake: FakeTailscale, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    fake.add_device("b1", "100.64.0.1")
    fake.devices[0]["connectedToControl"] = True
    monkeypatch.setattr("stacks.tailnet.device.LIMIT_SECONDS", 0.0)
    assert main(asked(fake)) == 0
    assert capsys.readouterr().out == "removed 0, kept 1 connected\n"
    assert len(fake.devices) == 1
    monkeypatch.setattr("stacks.tailnet.device.LIMIT_SECONDS", 60.0)
    monkeypatch.setattr("time.sleep", lambda _: fake.devices[0].update(connectedToControl=False))
    assert main(asked(fake)) == 0
    assert fake.devices == []
