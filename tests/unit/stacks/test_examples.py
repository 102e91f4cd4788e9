"""Every example stack is a good config, and a page names it; the README names three."""

import re
from pathlib import Path
from typing import Annotated, Any

import pytest
import yaml
from pydantic import TypeAdapter, ValidationError

from components.settings.problems import ROOT, Report
from components.settings.section import Section, keys_of
from stacks.config import PoolConfig, StackConfig, parse
from stacks.config.model import POOL
from stacks.config.schema import sections
from stacks.sites.hosts.inventory import complete
from stacks.sites.local.model import LocalSite
from tests.unit.configs import AUTH_KEY, HOST_KEY, PRIVATE_KEY

PROJECT = Path(__file__).parents[3]
EXAMPLES = sorted((PROJECT / "examples" / "stacks").glob("*.yaml"))


def opened(value: Any) -> Any:
    """The value with its secrets opened, all of which are the auth key."""
    if isinstance(value, dict):
        return AUTH_KEY if list(value) == ["secure"] else {key: opened(item) for key, item in value.items()}
    return [opened(item) for item in value] if isinstance(value, list) else value


def _of_pools(raw: dict[str, Any]) -> set[str]:
    """The nodes of rented pools."""
    pools = [pool for site in raw["sites"] for pool in site.get("pools", [])]
    return {f"{pool['name']}{number}" for pool in pools for number in range(1, pool["count"] + 1)}


def listed(site: dict[str, Any], folder: Path) -> Any:
    """The hosts of a site, those of its file too."""
    return complete(site, "", folder, Report(frozenset())).get("hosts", [])


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_a_good_config(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    key = PRIVATE_KEY
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id_ed25519").write_text(key)
    for beside in file.parent.glob("*.csv"):
        (tmp_path / beside.name).write_bytes(beside.read_bytes())
    written = yaml.safe_load(file.read_text())["config"]
    raw = {name.removeprefix(ROOT): opened(value) for name, value in written.items() if name.startswith(ROOT)}
    # What `make trust` would have written.
    hosts: list[Any] = [host for site in raw["sites"] for host in listed(site, tmp_path)]
    places = [f"[{host['address']}]:{host['port']}" if "port" in host else host["address"] for host in hosts]
    lines = [f"{place} {HOST_KEY}" for place in places]
    (tmp_path / "known_hosts").write_text("\n".join(lines) + "\n")
    keys = frozenset({"tailnet", "api_keys"})
    if raw.get("kind") == POOL:
        pool = parse(raw, PoolConfig, base_dir=tmp_path, secret_keys=keys)
        assert {node.name for node in pool.nodes()} == {host["name"] for host in hosts} | _of_pools(raw)
        return
    config = parse(raw, base_dir=tmp_path, secret_keys=keys)
    nodes = {node.name for node in config.nodes()}
    assert nodes >= {host["name"] for host in hosts}
    assert config.head.name in nodes
    assert not config.head.compute, "root of any node would be root of the head node"
    # The card of a desk shows a display, and is left to it: a promise of it would be refused there.
    assert not [site for site in config.sites if isinstance(site, LocalSite) and site.gpu]


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_with_sites_at_aws_says_the_region_that_the_provider_wants(file: Path) -> None:
    written = yaml.safe_load(file.read_text())["config"]
    regions = [site["region"] for site in written["tailrack:sites"] if site["kind"] == "aws"]
    assert written.get("aws:region") in (regions or [None])


def test_every_value_that_a_remedy_shows_is_accepted() -> None:
    models: set[type[Section]] = {StackConfig, PoolConfig}
    shown, refused = 0, []
    for name, key in (entry for model in models.union(*map(sections, models)) for entry in keys_of(model).items()):
        checked: Any = Annotated[(key.info.annotation, *key.info.metadata, None)]
        adapter = TypeAdapter(checked)
        for text in (key.help.wants, key.help.fix):
            # Not: files, keys in part, and samples of a part of the value.
            for example in re.findall(r"(?:such as |write (?=[\[{]))(\[.*?\](?=$|[,; ])|'[^']*'|[\w@:/.*+-]+)", text):
                if "..." in example or "TYPE" in example or example in ("JPY", "50-scratch", "$oauthtoken"):
                    continue
                shown += 1
                try:
                    adapter.validate_python(yaml.safe_load(example))
                except ValidationError as error:
                    # A secret is set by a command of its own.
                    refused += [f"{name}: {example}" for detail in error.errors() if detail["type"] != "missing"]
    assert shown > 100
    assert refused == []
