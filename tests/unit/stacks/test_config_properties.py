"""Properties of the stack config: every valid one is taken, and nothing else than ConfigError ever comes of junk."""

import re
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from components.settings.types import RESERVED_NAMES
from stacks.config import ConfigError, StackConfig, parse

HERE = Path(__file__).parent
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])

names = st.from_regex(r"[a-z][a-z0-9]{0,6}(-[a-z0-9]{1,4})?", fullmatch=True).filter(
    lambda name: name not in RESERVED_NAMES and not name.startswith(("site-", "gpu-"))
)


@st.composite
def valid_configs(draw: st.DrawFn) -> dict[str, Any]:
    """Lab stacks whose names never meet: sites end in -s, pools in -p and a number, the head in -h."""
    site_names = draw(st.lists(names.map(lambda name: f"{name}-s"), min_size=1, max_size=4, unique=True))
    pool_names = iter(draw(st.lists(names.map(lambda name: f"{name}-p"), min_size=8, max_size=8, unique=True)))
    sites: list[dict[str, Any]] = []
    for index, name in enumerate(site_names):
        counts = draw(st.lists(st.integers(1, 12), min_size=1, max_size=2))
        subnet = {"subnet": f"10.{index}.0.0/16"} if draw(st.booleans()) else {}
        pools = [{"name": next(pool_names), "count": count} for count in counts]
        sites.append({"name": name, "kind": "lab", "pools": pools, **subnet})
    uids = draw(st.lists(st.integers(1000, 59999), min_size=1, max_size=5, unique=True))
    return {
        "cluster": {"name": draw(names)},
        "head": {
            "name": draw(names.map(lambda name: f"{name}-h")),
            "site": draw(st.sampled_from(site_names)),
            "compute": draw(st.booleans()),
            "accept_root_risk": True,
        },
        "sites": sites,
        "users": [{"name": f"u{uid}", "uid": uid} for uid in uids],
    }


junk: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def refused(raw: dict[str, Any]) -> bool:
    """Whether the config is refused; anything but a config or a ConfigError fails the test."""
    try:
        config = parse(raw, base_dir=HERE, secret_keys=frozenset({"tailnet"}))
    except ConfigError as error:
        refusal = error
    else:
        assert isinstance(config, StackConfig)
        return False
    assert refusal.problems
    unlike = {(re.sub(r"\[\d+\]", "", problem.path), problem.text) for problem in refusal.problems}
    assert len(str(refusal).splitlines()) == 1 + min(len(unlike), 21)
    return True


@FEW
@given(valid_configs())
def test_every_valid_config_is_taken_with_its_own_name_for_each_node(raw: dict[str, Any]) -> None:
    config = parse(raw, base_dir=HERE)
    nodes = config.nodes()
    wanted = 1 + sum(pool["count"] for site in raw["sites"] for pool in site["pools"])
    assert len({node.name for node in nodes}) == len(nodes) == wanted
    assert [node.is_head for node in nodes].count(True) == 1
    assert {node.site for node in nodes} == {site["name"] for site in raw["sites"]}
    assert len(set(config.partitions())) == len(config.partitions())
    assert not {node.name for node in nodes} & set(config.partitions())


@FEW
@given(valid_configs(), st.data())
def test_junk_anywhere_in_a_config_is_refused_or_taken(raw: dict[str, Any], data: st.DataObject) -> None:
    place: Any = raw
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else range(len(place))))
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            break
        place = place[key]
    place[key] = data.draw(junk)
    refused(raw)


@FEW
@given(
    st.dictionaries(
        st.sampled_from([*StackConfig.model_fields, "other"]) | st.text(max_size=5),
        junk
        | st.dictionaries(st.sampled_from(["name", "site", "settings", "floors_gb_per_s", "min_bytes", "path"]), junk),
    )
)
def test_junk_alone_is_always_refused(raw: dict[str, Any]) -> None:
    assert refused(raw)


@FEW
@given(valid_configs(), st.text("abcdefghijkXYZ0123456789-", min_size=12), junk)
def test_errors_never_contain_an_auth_key(raw: dict[str, Any], key: str, other: object) -> None:
    raw |= {"tailnet": {"auth_key": key, "tag": other, "control_url": key}, "nonsense": other}
    try:
        told = repr(parse(raw, base_dir=HERE, secret_keys=frozenset({"tailnet"})))
    except ConfigError as error:
        told = str(error)
    assert key not in told
