"""The config of sites whose machines the stack rents: their nodes, and one clear error for each bad value."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from stacks.config import ConfigError, PoolConfig, parse
from stacks.sites.rented.model import RentedNode
from tests.unit.configs import AUTH_KEY, refused

FIXTURE = Path(__file__).parents[2] / "fixtures" / "sites-and-tailnets.yaml"
TABLES = yaml.safe_load(FIXTURE.read_text(encoding="utf-8"))
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


@pytest.mark.parametrize(("site", "path", "words"), TABLES["rented"])
def test_a_bad_value_is_named_with_its_place(folder: Path, site: dict[str, Any], path: str, words: str) -> None:
    text = problems(folder, raw(**site))
    assert f"tailrack:{path}: " in text
    assert words in text


def test_a_bad_or_missing_api_key_is_refused_with_the_command_and_not_shown(folder: Path) -> None:
    text = problems(folder, {key: value for key, value in raw().items() if key != "api_keys"})
    assert "tailrack:api_keys.lambda: missing" in text
    assert "pulumi config set --path --secret tailrack:api_keys.lambda" in text
    both = {**raw(), "api_keys": {"lambda": KEY, "runpod": f"{KEY}_2"}}
    plain = problems(folder, both, SECRET - {"api_keys"} | {"api_keys.runpod"})
    assert "tailrack:api_keys.lambda: [secret] is plain text in the config" in plain
    assert "runpod: [secret]" not in plain, "it is encrypted, beside one that is not"
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
