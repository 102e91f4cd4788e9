"""The tailnet's policy is checked before pods of a pool join, as far as the pool's credentials can read it."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pulumi
import pytest

from components.roles.network.tailnet.policy import Pods, policy
from components.roles.network.tailnet.settings import PoolTailnet
from stacks.tailnet.pods_policy import check_pods_policy, warning_of_pods
from tests.fake_tailscale import CLIENT, CLIENT_SECRET, FakeTailscale, serve

TAG, PORTS = "tag:gpus", ("22", "6817-6819")


@pytest.fixture
def fake() -> Iterator[FakeTailscale]:
    with serve() as served:
        yield served


def warnings_of(fake: FakeTailscale, secret: str = CLIENT_SECRET) -> list[str]:
    found: list[str] = []
    settings = PoolTailnet.model_validate(
        {"kind": "tailscale", "base_url": fake.url, "oauth_client_id": CLIENT, "oauth_client_secret": secret}
    )
    asyncio.run(check_pods_policy(settings, TAG, PORTS, Pods.ALONE, found.append))
    return found


def test_a_policy_that_opens_the_cluster_to_pods_ends_the_run(fake: FakeTailscale) -> None:
    wide = policy(TAG, PORTS, pods=Pods.ALONE)
    wide["grants"].append({"src": ["*"], "dst": ["*"], "ip": ["*"]})
    fake.policy = json.dumps(wide)
    with pytest.raises(pulumi.RunError, match=r"no machine has joined: a rule .* tag:gpus-pod reach .* tcp 0-6816"):
        warnings_of(fake)


def test_credentials_that_cannot_read_the_policy_warn(fake: FakeTailscale, monkeypatch: pytest.MonkeyPatch) -> None:
    refused: Any = lambda *_: (403, {"message": "calling actor does not have enough permissions"})  # noqa: E731
    monkeypatch.setattr(fake, "_policy", refused)
    (warning,) = warnings_of(fake)
    assert "403 calling actor does not have enough permissions" in warning
    assert "scope policy_file:read" in warning
    assert CLIENT_SECRET not in warning


def test_a_warning_names_another_control_server_with_unchecked_rules() -> None:
    assert "tailnet.kind control_url" in warning_of_pods("control_url")
    assert "docs/pods.md" in warning_of_pods("control_url")
    assert warning_of_pods("tailscale") == warning_of_pods("lab") == ""
