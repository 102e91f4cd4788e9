"""storage.mounts: what is refused, which key is named, and what a pool may say."""

import json
from pathlib import Path

import pytest
import yaml

from components.roles.cluster_settings import ClusterSettings
from components.roles.order import roles
from components.roles.storage.mounts.settings import Mount
from components.settings.serialize import from_plain, to_plain, whole_numbers
from stacks.config import ConfigError, PoolConfig, StackConfig, parse
from tests.unit.configs import HOSTS, refused

TABLES = yaml.safe_load((Path(__file__).parents[2] / "fixtures" / "storage.yaml").read_text(encoding="utf-8"))
DATA = 'path: /data, source: "10.0.0.5:/export"'


def read(*mounts: str) -> StackConfig:
    listed = yaml.safe_load(f"[{', '.join(f'{{{mount}}}' for mount in mounts)}]")
    return parse({**TABLES["stack"], "storage": {"mounts": listed}}, base_dir=Path())


def read_pool(mount: str) -> PoolConfig:
    raw = {**TABLES["pool"], "storage": {"mounts": [yaml.safe_load(f"{{{mount}}}")]}}
    return parse(raw, PoolConfig, base_dir=Path())


@pytest.mark.parametrize(("mount", "key", "words"), TABLES["refused"])
def test_a_bad_mount_is_one_clear_error(mount: str, key: str, words: str) -> None:
    (problem,) = refused(read, mount).problems
    assert problem.path.endswith(key)
    assert words in problem.text


@pytest.mark.parametrize(("first", "second", "words"), TABLES["pairs"])
def test_two_mounts_that_contradict_each_other_are_refused(first: str, second: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read(first, second)


def test_the_home_of_the_login_is_no_mount_point() -> None:
    site = HOSTS["sites"][0]
    hosts = [{**host, "private_key_file": None, "agent": True} for host in site["hosts"]]
    raw = {**HOSTS, "sites": [{**site, "hosts": hosts}]}
    raw["storage"] = {"mounts": [{"path": "/home/ops", "type": "present"}]}
    with pytest.raises(ConfigError, match="the home of the account that tailrack logs in with"):
        parse(raw, base_dir=Path())


def test_a_pool_has_its_clusters_mounts_unless_it_has_its_own() -> None:
    cluster = read(f"{DATA}, options: [nconnect=8]")
    outputs = json.loads(json.dumps(to_plain(cluster, ClusterSettings)), parse_int=float)
    settings = from_plain(ClusterSettings, whole_numbers(outputs))
    plain = parse(TABLES["pool"], PoolConfig, base_dir=Path())
    assert plain.joined(settings).storage == cluster.storage
    own = read_pool("path: /scratchfs, type: present, sites: [three]").joined(settings).storage
    assert [mount.path for mount in own.mounts] == ["/scratchfs"]
    assert own.mount == "/shared"


def test_nodes_get_one_row_for_each_mount() -> None:
    config = read(f"{DATA}, sites: [one, two], options: [noatime, nconnect=8], required: true")
    homes = Mount(path="/homes", source="nas:/home")
    config = config.model_copy(update={"storage": config.storage.model_copy(update={"homes": homes})})
    (role,) = (role for role in roles(config) if role.name == "mounts")
    row = ("/data", "nfs4", "10.0.0.5:/export", "noatime,nconnect=8", False, True, False, "one,two", "")
    row_of_homes = ("/homes", "nfs4", "nas:/home", "", False, True, False, "", "/homes/ada")
    assert role.values == {"mounts_table": [row, row_of_homes]}
