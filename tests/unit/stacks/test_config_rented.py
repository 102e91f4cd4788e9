"""The config of sites whose machines the stack rents: their nodes, and one clear error for each bad value."""

from pathlib import Path
from typing import Any

import pytest

from stacks.config import ConfigError, PoolConfig, parse
from stacks.sites.rented.model import RentedNode
from tests.unit.configs import AUTH_KEY, refused

KEY = "secret_of_lambda_nobody_may_see"
SECRET = frozenset({"api_keys", "tailnet"})


def raw(**site: Any) -> dict[str, Any]:
    pool = {"name": "g", "count": 2, "type": "gpu_8x_h100_sxm5", "gpu": "h100:8"}
    keys = {"name": "burst", "kind": "lambda", "region": "us-east-1", "private_key_file": "key"}
    secrets = {"api_keys": {"lambda": KEY}, "tailnet": {"auth_key": AUTH_KEY}}
    return {"kind": "pool", "cluster": "prod", **secrets, "sites": [{**keys, "pools": [pool], **site}]}


def pool(**keys: Any) -> dict[str, Any]:
    return {"pools": [{"name": "g", "type": "gpu_8x_h100_sxm5", **keys}]}


def problems(folder: Path, config: dict[str, Any], secret_keys: frozenset[str] = SECRET) -> str:
    error = str(refused(parse, config, PoolConfig, base_dir=folder, secret_keys=secret_keys))
    assert KEY not in error
    return error


def test_attempts_inherit_missing_keys_from_the_pool_and_the_site(folder: Path) -> None:
    attempts = [{"region": "us-east-1"}, {"region": "us-west-2"}, {"type": "gpu_8x_a100"}]
    (node,) = parse(raw(**pool(**{"try": attempts})), PoolConfig, base_dir=folder, secret_keys=SECRET).nodes()
    assert isinstance(node, RentedNode)
    h100, east, west = "gpu_8x_h100_sxm5", "us-east-1", "us-west-2"
    assert node.offers == ((h100, east), (h100, west), ("gpu_8x_a100", east))


@pytest.mark.parametrize(
    ("site", "path", "words"),
    [
        ({"region": "US East"}, "sites[0].region", "is not the name of a region"),
        ({"fewer": "ignore"}, "sites[0].fewer", "is not fail or warn"),
        ({"boot_minutes": 0}, "sites[0].boot_minutes", "is not a whole number from 1 to 120"),
        ({"base_url": "https://lambda.example.org"}, "sites[0].base_url", "is not an address of this machine"),
        ({"base_url": "http://key@127.0.0.1/"}, "sites[0].base_url", "is not an address of this machine"),
        ({"tags": {"Team": "x"}}, "sites[0].tags.Team", "does not fit in a mapping of words"),
        ({"agent": True}, "sites[0].agent", "is true, but private_key_file is also set"),
        ({"public_key": "ssh-ed25519 AAAA"}, "sites[0].public_key", ""),
        ({"pools": []}, "sites[0].pools", "the site has no nodes"),
        (pool(type="a b"), "sites[0].pools[0].type", "is not the name of a machine type"),
        (pool(**{"try": "us-west-2"}), "sites[0].pools[0].try", "is not a list such as"),
        (pool(**{"try": [{}]}), "sites[0].pools[0].try[0]", "names neither a type nor a region"),
        (pool(**{"try": [{"region": "us-east-1"}] * 2}), "sites[0].pools[0].try[1]", "is in the list twice"),
        (pool(**{"try": [{"zone": "a"}]}), "sites[0].pools[0].try[0].zone", "unknown key"),
        (pool(market="spot"), "sites[0].pools[0].market", "unknown key"),
        (pool(spot=True), "sites[0].pools[0].spot", "delete it: this cloud has no spot machines"),
        ({"max_price_per_hour": 0}, "sites[0].max_price_per_hour", "is not a number above 0"),
        ({"max_price_per_hour": "3 USD"}, "sites[0].max_price_per_hour", "is not a number above 0"),
    ],
)
def test_a_bad_value_is_named_with_its_place(folder: Path, site: dict[str, Any], path: str, words: str) -> None:
    text = problems(folder, raw(**site))
    assert f"tailrack:{path}: " in text
    assert words in text


def test_a_bad_or_missing_api_key_is_refused_with_the_command_and_not_shown(folder: Path) -> None:
    config = raw()
    del config["api_keys"]
    text = problems(folder, config)
    assert "tailrack:api_keys.lambda: missing" in text
    assert "pulumi config set --path --secret tailrack:api_keys.lambda" in text
    plain = problems(folder, raw(), SECRET - {"api_keys"})
    assert "tailrack:api_keys: [secret] is plain text in the config" in plain
    broken = problems(folder, {**raw(), "api_keys": {"lambda": f"{KEY}\r\nX-More: header"}})
    assert "spaces, line breaks or other letters" in broken


def test_a_head_node_at_the_site_needs_its_machine(folder: Path) -> None:
    config = raw() | {"cluster": {"name": "prod"}, "head": {"name": "head", "site": "burst"}}
    config["users"] = [{"name": "ada", "uid": 6001}]
    del config["kind"]
    with pytest.raises(ConfigError, match=r"sites\[0\]\.head: missing, but the head node is at this site"):
        parse(config, base_dir=folder, secret_keys=SECRET)
    config["sites"][0]["head"] = {"type": "gpu_1x_a10"}
    head = parse(config, base_dir=folder, secret_keys=SECRET).nodes()[0]
    assert (head.name, head.is_head) == ("head", True)
