"""A stack of kind pool against mocks: what it makes of the outputs of its cluster's stack, and what it refuses."""

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.cluster.head_link import HeadLink
from components.roles.cluster_settings import ClusterSettings
from components.roles.containers.enroot_pyxis.settings import FILES, Containers
from components.roles.order import roles
from components.settings.serialize import from_plain, to_plain, whole_numbers
from stacks.config import ConfigError, PoolConfig, load, parse
from stacks.joining import peer, problems
from stacks.pool import pool_stack
from tests.unit.configs import AUTH_KEY, HOSTS, LAB, LAB_PRIVATE_KEY, MUNGE_KEY, RawConfig
from tests.unit.recorded import Build, Recorded, record

POOL: RawConfig = {
    "kind": "pool",
    "cluster": "dev",
    "sites": [{"name": "cloud-c", "kind": "lab", "pools": [{"name": "c", "count": 2}]}],
    "validation": {"min_bytes": "64K", "max_bytes": "4M", "factor": 4, "floors_gb_per_s": {"cloud-c": 0.02}},
}

CONTAINERS: RawConfig = {"checksums": dict.fromkeys(FILES, "0123456789abcdef" * 4)}


def build_pool(cluster: Recorded, raw: RawConfig = POOL, stack: str = "burst", **outputs: Any) -> Recorded:
    """A pool of a cluster that was built against mocks; `outputs` take the place of those of the cluster's stack."""
    told = {**cluster.outputs, **outputs}
    return record_pool(raw, stack, {"outputs": json.loads(json.dumps(told)), "secretOutputNames": ["head_link"]})


def record_pool(raw: RawConfig, stack: str, answer: Any) -> Recorded:
    """A pool where the engine returns this for the outputs of its cluster's stack."""
    config = parse(copy.deepcopy(raw), PoolConfig, base_dir=Path(), secret_keys=frozenset({"tailnet"}))

    async def program() -> Any:
        return (await pool_stack(config, stack)).outputs

    return record(program, answers={"dev": answer})


@pytest.fixture
def cluster(build: Build, lab_config: RawConfig) -> Recorded:
    """The lab cluster, with a login server that asks for a key and a limit for jobs of its own."""
    lab_config["slurm"] = {"job_limit_seconds": 77, "settings": {"TaskPluginParam": "Verbose"}}
    return build(lab_config)


@pytest.fixture
def pool(cluster: Recorded) -> Recorded:
    """A pool of two nodes at a site of its own in that cluster."""
    return build_pool(cluster)


# What it makes.


def test_a_pool_is_its_place_on_the_head_node_and_its_nodes(pool: Recorded) -> None:
    own = [name for name in pool.names if not name.startswith(("c1", "c2", "validat"))]
    assert own == ["burst", "burst-pool", "burst-scripts", "lab", "lab-networks"]
    steps = ("container", "node", "prepare", "register", "scripts")
    assert [name for name in pool.names if name.startswith("c1")] == ["c1", *(f"c1-{step}" for step in steps)]


def test_a_pools_nodes_receive_the_same_cluster_facts_as_the_clusters_own(cluster: Recorded, pool: Recorded) -> None:
    for step in ("prepare", "register", "node"):
        mine, other = pool.header(f"c1-{step}"), cluster.header(f"b1-{step}")
        differing = {name for name in mine.keys() | other.keys() if mine.get(name) != other.get(name)}
        assert all(name.startswith(("node_", "host_", "step_", "pool_")) for name in differing), step


def test_the_link_contains_all_cluster_settings_that_nodes_read(key_folder: Path) -> None:
    raw = {
        **copy.deepcopy(LAB),
        "cluster": {"name": "other"},
        "users": [{"name": "bob", "uid": 7001}],
        "tailnet": {"tag": "tag:other", "control_url": "https://login.example.org"},
        "storage": {"path": "/export/other", "mount": "/data"},
        "slurm": {"job_limit_seconds": 5, "ssh_needs_job": False, "settings": {"KillWait": 60}},
        "containers": {**CONTAINERS, "artifacts": "https://mirror.example.org/files", "nvidia_libraries": False},
    }
    cluster = parse(raw, base_dir=key_folder)
    as_output = json.loads(json.dumps(to_plain(cluster, ClusterSettings)), parse_int=float)
    told = from_plain(ClusterSettings, whole_numbers(as_output))
    pool = parse(copy.deepcopy(POOL), PoolConfig, base_dir=key_folder)
    theirs, own = ([(role.name, role.values) for role in roles(of)] for of in (cluster, pool.joined(told)))
    assert own == theirs


def test_the_link_contains_no_folder_of_the_clusters_operator(key_folder: Path) -> None:
    containers = parse({**copy.deepcopy(LAB), "containers": CONTAINERS}, base_dir=key_folder).containers
    assert containers is not None
    local = containers.model_copy(update={"artifacts": "/folder/of/the/operator"})
    assert from_plain(Containers, to_plain(local, Containers)).artifacts == ""


def test_another_user_of_the_cluster_touches_pool_nodes(build: Build, lab_config: RawConfig, pool: Recorded) -> None:
    lab_config["slurm"] = {"job_limit_seconds": 77, "settings": {"TaskPluginParam": "Verbose"}}
    lab_config["users"].append({"name": "bob", "uid": 6002})
    after = build_pool(build(lab_config))
    assert after.differences(pool) == {"c1-prepare", "c2-prepare", "c1-node", "c2-node"}


# Its measurement.


def test_a_pools_measurement_includes_the_cluster_settings_that_jobs_inherit(pool: Recorded) -> None:
    mpi = {"c1": "5-pmix5", "c2": "5-pmix5"}
    how = {"cgroups": False, "interface": "tailscale0", "mpi": mpi, "taskpluginparam": "Verbose"}
    assert how in pool["validate-cross-site"].inputs["triggers"]


def node(name: str, site: str, address: str | None = "100.64.0.9", **more: Any) -> dict[str, Any]:
    return {"name": name, "site": site, "tailnet_ip": address, "gpus": 0, **more}


def test_a_pool_is_measured_with_a_node_near_the_head() -> None:
    nodes = [node("head", "a"), node("b1", "b"), node("a1", "a")]
    out_of_reach = [*nodes[:2], node("a1", "a", None)]
    for known, computes, expected in ((nodes, True, "head"), (nodes, False, "a1"), (out_of_reach, False, "b1")):
        assert peer({"name": "lab", "nodes": known}, computes)["name"] == expected


def idle_head(cluster: Recorded) -> dict[str, Any]:
    """Return the link of a cluster whose head node runs no jobs."""
    link = cluster.outputs["head_link"]
    return {**link, "settings": {**link["settings"], "head": {**link["settings"]["head"], "compute": False}}}


def test_a_pool_of_pods_joins_a_head_node_alone_and_measures_nothing(cluster: Recorded) -> None:
    site = lab_site("more", "q", like="pod")
    nodes = cluster.outputs["cluster"]["nodes"][:1]
    outputs = {"cluster": {**cluster.outputs["cluster"], "nodes": nodes}, "head_link": idle_head(cluster)}
    alone = replace(cluster, outputs={**cluster.outputs, **outputs})
    pool = build_pool(alone, {**POOL, "sites": [site], "validation": {}})
    assert pool.validations == set()
    assert pool.outputs["validation"] == {}
    assert pool.outputs["busbw_gb_per_s"] is None
    assert pool.outputs["cluster"]["nodes"][0]["pod"] is True


def test_a_cluster_without_a_node_to_measure_with_is_refused(cluster: Recorded) -> None:
    head, *others = cluster.outputs["cluster"]["nodes"]
    pods = [head, *({**each, "pod": True} for each in others)]
    for nodes, words in ((pods, "has only pods, which are not measured"), ([head], "has no node that runs jobs")):
        told = {**cluster.outputs["cluster"], "nodes": nodes}
        (problem,) = refused(cluster, POOL, cluster=told, head_link=idle_head(cluster))
        assert words in problem


# Its outputs and secrets.


def test_a_pools_secrets_cross_as_secrets_and_are_in_no_output(cluster: Recorded) -> None:
    pool = build_pool(cluster, {**POOL, "tailnet": {"auth_key": AUTH_KEY}})
    for step in pool.remote:
        hidden = "stdin" in step.secret_paths
        assert hidden == step.name.endswith("-prepare"), step.name
        assert (MUNGE_KEY in step.inputs["stdin"]) == (AUTH_KEY in step.inputs["stdin"]) == hidden
        assert LAB_PRIVATE_KEY in step.inputs["connection"]["privateKey"]
    for resource in pool.resources:
        for secret in (MUNGE_KEY, AUTH_KEY, LAB_PRIVATE_KEY):
            # A reference to another stack is kept by the engine, which seals what is secret in it.
            assert secret not in resource.in_plain_state, resource.name
    assert pool.secret_outputs == set()
    assert not [secret for secret in (MUNGE_KEY, AUTH_KEY, LAB_PRIVATE_KEY) if secret in json.dumps(pool.outputs)]


# What it refuses, by the outputs of its cluster.


def lab_site(name: str, pool: str, **more: str) -> dict[str, Any]:
    return {"name": name, "kind": "lab", "pools": [{"name": pool, **more}]}


def refused(made: Recorded, raw: RawConfig, stack: str = "burst", base_dir: Path = Path(), **outputs: Any) -> list[str]:
    config = parse(copy.deepcopy(raw), PoolConfig, base_dir=base_dir, secret_keys=frozenset({"tailnet"}))
    told = {**made.outputs, **outputs}
    link = told["head_link"]
    settings = HeadLink.settings_of(link) if link else None
    return [str(problem) for problem in problems(config, stack, told["cluster"], link, settings)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sites": [lab_site("cloud-b", "c")], "validation": {}}, "'cloud-b' is already a partition of the"),
        ({"sites": [lab_site("cloud-c", "b")]}, "node b1 of the pool has the name"),
        ({"containers": CONTAINERS}, "the cluster has no containers"),
    ],
)
def test_names_and_roles_that_do_not_fit_are_refused_first(cluster: Recorded, change: RawConfig, words: str) -> None:
    (problem,) = refused(cluster, {**POOL, **change})
    assert words in problem
    with pytest.raises(pulumi.RunError, match=words):
        build_pool(cluster, {**POOL, **change})


def test_a_gpu_kind_with_the_name_of_a_site_of_the_cluster_is_refused(cluster: Recorded, key_folder: Path) -> None:
    host = {**HOSTS["sites"][0]["hosts"][1], "name": "g1", "gpu": "cloud-b:8"}
    changes = {"sites": [{"name": "far", "kind": "hosts", "hosts": [host]}], "tailnet": {"auth_key": AUTH_KEY}}
    (problem,) = refused(cluster, {**POOL, **changes, "validation": {}}, base_dir=key_folder)
    assert "GPU kind cloud-b is the name of a site" in problem


def test_a_pool_of_pods_joins_no_cluster_with_a_release_of_slurm_and_is_not_elastic(cluster: Recorded) -> None:
    raw = {**POOL, "sites": [lab_site("pods", "p", like="pod")], "validation": {}}
    link = cluster.outputs["head_link"]
    assert refused(cluster, raw) == []
    slurm = {**link["settings"]["slurm"], "release": "24.11.5"}
    (problem,) = refused(cluster, raw, head_link={**link, "settings": {**link["settings"], "slurm": slurm}})
    assert "pods cannot install it" in problem
    with pytest.raises(ConfigError, match="elastic: is set for pods"):
        parse({**raw, "elastic": {"cpus": 8, "memory_gb": 64}}, PoolConfig, base_dir=Path())
    elastic = {"cpus": 8, "memory_gb": 64, "max_price_per_hour": 12}
    with pytest.raises(ConfigError, match="has no nodes"):
        parse({**raw, "sites": [{"name": "p", "kind": "lab"}], "elastic": elastic}, PoolConfig, base_dir=Path())


@pytest.mark.parametrize("link", [None, {"name": "head"}, {"shape": "of another release"}])
def test_a_stack_that_is_no_cluster_or_of_an_earlier_version_is_refused(cluster: Recorded, link: Any) -> None:
    if link and "shape" in link:
        link = {**cluster.outputs["head_link"], **link}
    (problem,) = refused(cluster, POOL, head_link=link)
    assert "has no cluster to join" in problem
    assert "make up STACK=dev" in problem


def test_unreadable_cluster_outputs_are_one_problem_that_names_the_key() -> None:
    words = "tailrack:cluster: the outputs of stack 'dev' cannot be read: .*: it is gone .*; no node could join; write"
    with pytest.raises(pulumi.RunError, match=words):
        record_pool(POOL, "burst", "it is gone")


def test_a_pool_joins_neither_itself_nor_a_head_node_behind_a_bastion(cluster: Recorded) -> None:
    (problem,) = refused(cluster, POOL, head_link={**cluster.outputs["head_link"], "bastion": True})
    assert "behind a bastion" in problem
    (problem,) = refused(cluster, POOL, stack="dev")
    assert "is this stack; it cannot join itself" in problem


# Its config.


def as_pulumi(raw: RawConfig) -> dict[str, str]:
    return {f"tailrack:{key}": value if isinstance(value, str) else json.dumps(value) for key, value in raw.items()}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"head": {"name": "head"}}, r"tailrack:head: is a section of the cluster's stack; .*; remove it here"),
        ({"users": []}, r"tailrack:users: is a section of the cluster's stack"),
        ({"storage": {"path": "/data"}}, r"tailrack:storage.path: unknown key; .*mounts"),
        ({"slurm": {"settings": {}}}, r"tailrack:slurm: is a section of the cluster's stack"),
        ({"cluster": {"name": "lab"}}, r"tailrack:cluster: a mapping is not the name of a stack"),
        ({"cluster": "a/b/c/d"}, r"tailrack:cluster: 'a/b/c/d' is not the name of a stack"),
        ({"cluster": "../dev"}, r"tailrack:cluster: '../dev' is not the name of a stack"),
        ({"spot": {"forget_after_minutes": -1}}, r"tailrack:spot.forget_after_minutes: -1 is not a whole number"),
        ({"tailnet": {"tag": "tag:x"}}, r"tailrack:tailnet.tag: unknown key"),
        ({"tailnet": {"auth_key": "key"}}, r"tailrack:tailnet.auth_key: \[secret\] is plain text"),
        ({"repair": {"d1": "x"}}, r"tailrack:repair.d1: is not a node of this stack"),
        ({"kind": "swarm"}, r"tailrack:kind: 'swarm' is not cluster or pool"),
        (
            {"sites": [{"name": "far", "kind": "hosts", "hosts": [HOSTS["sites"][0]["hosts"][1]]}]},
            r"tailrack:tailnet.auth_key: missing; .* --secret tailrack:tailnet.auth_key(\n|$)",
        ),
    ],
)
def test_a_pool_reports_its_config_errors(change: RawConfig, words: str, key_folder: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        load(as_pulumi({**POOL, **change}), [], key_folder)


def test_an_oauth_client_makes_a_pools_machines_ephemeral() -> None:
    keys = frozenset({"tailnet"})
    tailnet = {"auth_key": "tskey-client-x-y"}
    pool = parse({**POOL, "tailnet": tailnet}, PoolConfig, base_dir=Path(), secret_keys=keys)
    cluster = parse({**LAB, "tailnet": tailnet}, base_dir=Path(), secret_keys=keys)
    for config, ephemeral in ((pool, "ephemeral=true"), (cluster, "ephemeral=false")):
        assert config.tailnet.auth_key is not None
        assert ephemeral in config.tailnet.auth_key.get_secret_value()


@pytest.mark.parametrize("key", ["spot", "repair"])
def test_a_key_of_pools_in_a_clusters_config_is_said_to_be_one(key: str) -> None:
    with pytest.raises(ConfigError, match=f"tailrack:{key}: unknown key; .*; it belongs to a stack of kind pool"):
        load(as_pulumi({**LAB, key: {}}), [], Path())
