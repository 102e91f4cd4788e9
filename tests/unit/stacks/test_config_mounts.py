"""storage.mounts: what is refused, which key is named, and what a pool may say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from components.roles.cluster_settings import ClusterSettings
from components.roles.order import roles
from components.settings.serialize import from_plain, to_plain, whole_numbers
from stacks.config import ConfigError, PoolConfig, StackConfig, parse
from tests.unit.configs import HOSTS, refused

STACK = """
cluster: {name: lab}
head: {name: head, site: one}
sites:
- {name: one, kind: lab, pools: [{name: a, count: 2, features: [nvme, mount-taken]}]}
- {name: two, kind: lab, pools: [{name: b, count: 1}]}
users: [{name: ada, uid: 6001}]
scratch: {folder: /raid}
"""
POOL = """
kind: pool
cluster: dev
sites: [{name: three, kind: lab, pools: [{name: c, count: 1}]}]
"""
DATA = 'path: /data, source: "10.0.0.5:/export"'


def read(*mounts: str) -> StackConfig:
    listed = yaml.safe_load(f"[{', '.join(f'{{{mount}}}' for mount in mounts)}]")
    return parse({**yaml.safe_load(STACK), "storage": {"mounts": listed}}, base_dir=Path())


def read_pool(mount: str) -> PoolConfig:
    raw = {**yaml.safe_load(POOL), "storage": {"mounts": [yaml.safe_load(f"{{{mount}}}")]}}
    return parse(raw, PoolConfig, base_dir=Path())


REFUSED = [
    # path
    ("path: data, type: present", "[0].path", "'data' is not an absolute path"),
    ("path: /a/../etc, type: present", "[0].path", "is not an absolute path of plain letters"),
    ('path: "/a b", type: present', "[0].path", "is not an absolute path of plain letters"),
    ("path: /data/, type: present", "[0].path", "is not an absolute path of plain letters"),
    ("path: /, type: present", "[0].path", "is not an absolute path of plain letters"),
    ("path: /var/lib/slurm, type: present", "[0].path", "is a folder of the system"),
    ("path: /home, type: present", "[0].path", "is a folder of the system"),
    (f"path: /{'x' * 100}, type: present", "[0].path", "is longer than 100 characters"),
    ("path: /shared/home, type: present", "[0].path", "is inside or around '/shared', the cluster's share"),
    ("path: /export, type: present", "[0].path", "is inside or around '/export/shared', the cluster's share"),
    ("path: /raid, type: present", "[0].path", "is '/raid', the folder of jobs' scratch space"),
    ("type: present", "[0].path", "missing"),
    # source
    ("path: /data", "[0].source", "missing; the server would be unknown"),
    ('path: /data, source: "10.0.0.5:export"', "[0].source", "is not an NFS server and its folder"),
    ('path: /data, source: "-oops:/export"', "[0].source", "is not an NFS server and its folder"),
    ('path: /data, source: "nas:/a%n"', "[0].source", "is not an NFS server and its folder"),
    ('path: /data, source: "nas:/a\\nExecStart=/x"', "[0].source", "is not an NFS server and its folder"),
    # type
    ('path: /data, source: "nas:/x", type: nfs', "[0].type", "NFS version 3 needs rpcbind"),
    ('path: /data, source: "nas:/x", type: cifs', "[0].type", "is neither nfs4 nor present"),
    ('path: /data, type: present, source: "nas:/x"', "[0].source", "is set for a mount of type present"),
    ("path: /data, type: present, tailnet: true", "[0].tailnet", "is set for a mount of type present"),
    ("path: /data, type: present, options: [noatime]", "[0].options", "is set for a mount of type present"),
    # options
    (f"{DATA}, options: [suid]", "[0].options[0]", "'suid' is not an NFS option that tailrack allows"),
    (f'{DATA}, options: ["noatime,suid"]', "[0].options[0]", "is not an NFS option"),
    (f"{DATA}, options: [noatime=1]", "[0].options[0]", "is not an NFS option"),
    (f"{DATA}, options: [nconnect=17]", "[0].options[0]", "is not nconnect= with a whole number from 1 to 16"),
    (f"{DATA}, options: [rsize=]", "[0].options[0]", "is not rsize="),
    (f"{DATA}, options: [vers=3]", "[0].options[0]", "has none of the values 4, 4.0, 4.1, 4.2"),
    (f"{DATA}, options: [vers=4.2, nfsvers=4.1]", "[0].options[1]", "is in the list twice"),
    (f"{DATA}, options: [soft]", "[0].options[0]", "'soft' without read_only"),
    # sites
    (f"{DATA}, sites: [one, tow]", "[0].sites[1]", "did you mean 'two'?"),
    (f"{DATA}, sites: [one, one]", "[0].sites[1]", "is in the list twice"),
    (f"{DATA}, sites: []", "[0].sites", "is not a list of names of sites (at least one)"),
    # features
    ("path: /taken, type: present", ".features[1]", "'mount-taken' is a mount's feature"),
]


@pytest.mark.parametrize(("mount", "key", "words"), REFUSED, ids=[words for _, _, words in REFUSED])
def test_a_bad_mount_is_one_clear_error(mount: str, key: str, words: str) -> None:
    (problem,) = refused(read, mount).problems
    assert problem.path.endswith(key)
    assert words in problem.text


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (f"{DATA}, sites: [one, two]", "path: /data, type: present, sites: [two]", "is the path of .* on two"),
        (DATA, "path: /data, type: present, sites: [two]", "is the path of"),
        (DATA, "path: /data/x, type: present", "is inside or around the path of"),
        ("path: /a-b, type: present, sites: [one]", "path: /a/b, type: present, sites: [two]", "has the same feature"),
    ],
)
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
    plain = parse(yaml.safe_load(POOL), PoolConfig, base_dir=Path())
    assert plain.joined(settings).storage == cluster.storage
    own = read_pool("path: /scratchfs, type: present, sites: [three]").joined(settings).storage
    assert [mount.path for mount in own.mounts] == ["/scratchfs"]
    assert own.mount == "/shared"


def test_nodes_get_one_row_for_each_mount() -> None:
    config = read(f"{DATA}, sites: [one, two], options: [noatime, nconnect=8], required: true")
    (role,) = (role for role in roles(config) if role.name == "mounts")
    row = ("/data", "nfs4", "10.0.0.5:/export", "noatime,nconnect=8", False, True, False, "one,two")
    assert role.values == {"MOUNTS_TABLE": [row]}
