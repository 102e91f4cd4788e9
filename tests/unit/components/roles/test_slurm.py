"""slurm.conf and its kin as they lie on the head node: the cluster's own files, and what each node adds to them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from jinja2 import UndefinedError
from syrupy.assertion import SnapshotAssertion

from components.cluster.cluster import NO_POOL
from components.cluster.compute_node import node_header
from components.host import Connection, Host
from components.node.step.values import read_values
from components.roles.cluster_settings import ClusterSettings
from components.roles.order import roles
from components.roles.role import Value, render
from components.roles.slurm.slurm.controller import merged
from components.roles.slurm.slurm.machine_keys import machine_keys
from components.roles.slurm.slurm.node_lines import memory_values, node_values
from components.roles.slurm.slurm.nodes import NodeFiles, write_node
from components.roles.slurm.slurm.settings import known_keys
from components.roles.slurm.slurm.slurm_conf import controller_files
from components.settings.types import Gpu
from stacks.config import parse
from tests.unit.configs import LAB, RawConfig
from tests.unit.shell import Shell, assert_ok, machine, script_of

NOWHERE = Connection("", 22, "", "", "")
# What the machines of a site have, with 8 cores each.
MEMORY_MB = {"cloud-a": 16000, "cloud-b": 32000, "rack": 2000000, "cloud": 64000, "desk": 8000, "burst": 4000}
FILES = ("slurm.conf", "gres.conf", "topology.conf", "cgroup.conf", "mpi.conf", "job_submit.lua")


def node(name: str, site: str, kind: str = "", count: int = 0, features: tuple[str, ...] = (), **extra: Any) -> Host:
    gpu = Gpu(kind, count) if kind else None
    return Host(name=name, site=site, connection=NOWHERE, features=features, gpu=gpu, **extra)


@dataclass(frozen=True)
class Model:
    """A cluster: its settings, its sites, and the nodes that are members."""

    config: RawConfig
    head_address: str
    sites: tuple[str, ...]
    nodes: tuple[Host, ...]
    cgroups: bool

    @property
    def settings(self) -> ClusterSettings:
        return parse({**LAB, **self.config}, base_dir=Path())

    @property
    def own_files(self) -> dict[str, str]:
        """The cluster's own files by name."""
        settings = self.settings
        made = controller_files(settings, roles(settings), self.sites, self.head_address, self.cgroups)
        return {name: made[f"slurm_{name}".replace(".", "_")] for name in FILES}


SMALL = Model(
    config={},
    head_address="100.64.0.1",
    sites=("cloud-a", "cloud-b"),
    nodes=(node("head", "cloud-a"), node("a1", "cloud-a"), node("b1", "cloud-b")),
    cgroups=False,
)
LARGE = Model(
    config={
        "cluster": {"name": "prod"},
        "head": {"name": "door", "site": "rack"},
        "sites": [{"name": site, "kind": "lab", "pools": [{"name": site[0]}]} for site in ("rack", "cloud", "desk")],
        "slurm": {
            "partitions": [{"name": "long", "sites": ["rack", "cloud"], "max_time": "7-00:00:00"}],
            "settings": {"KillWait": "45", "CompleteWait": 10.0},
        },
        "validation": {},
    },
    head_address="100.64.0.9",
    sites=("rack", "cloud", "desk"),
    nodes=(
        *(node(f"dgx{number}", "rack", "h200", 8) for number in (1, 2, 4)),
        node("c1", "cloud", "h200", 1),
        node("c2", "cloud", "a100", 4),
    ),
    cgroups=True,
)
# Files by name, of a model's head node.
Handed = Callable[["Model"], dict[str, str]]
models = pytest.mark.parametrize("model", [SMALL, LARGE], ids=["small", "large"])


def join(shell: Shell, *nodes: Host, profile: str = "processes") -> None:
    """Write what nodes add, as their member steps do."""
    for one in nodes:
        found = {**memory_values(one, 8, MEMORY_MB[one.site]), "node_profile": profile}
        shell.call(write_node, read_values(NodeFiles, {**node_header(one), **found, **NO_POOL}))


def on_the_head(shell: Shell, model: Model) -> dict[str, str]:
    """All files as the head node hands them to slurmctld."""
    for name, text in model.own_files.items():
        shell.write(f"base/{name}", f"{text}\n")
    join(shell, *model.nodes, profile="cgroups" if model.cgroups else "processes")
    with shell.here():
        return {name: f"{text}\n" for name, text in merged("/base").items()}


@pytest.fixture(scope="module")
def handed_over(tmp_path_factory: pytest.TempPathFactory, tools: Path) -> Handed:
    """All files of a model's head node, made once."""
    made: dict[str, dict[str, str]] = {}

    def of(model: Model) -> dict[str, str]:
        if repr(model) not in made:
            made[repr(model)] = on_the_head(machine(tmp_path_factory.mktemp("head"), tools), model)
        return made[repr(model)]

    return of


def settings(model: Model) -> dict[str, str]:
    """The keys of slurm.conf that have a line of their own. (slurmutils refuses Slurm's own YES and UP.)"""
    conf = model.own_files["slurm.conf"]
    return {key: value for line in lines(conf) if len(line) == 1 for key, value in line.items()}


def lines(text: str) -> list[dict[str, str]]:
    """Every line of `key=value key=value` that is no comment."""
    kept = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [dict(word.split("=", 1) for word in line.split()) for line in kept]


@models
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_as_it_was(handed_over: Handed, model: Model, name: str, snapshot: SnapshotAssertion) -> None:
    assert handed_over(model)[name] == snapshot


@models
def test_every_key_is_one_that_slurm_knows_and_is_there_once(handed_over: Handed, model: Model) -> None:
    text = handed_over(model)["slurm.conf"]
    keys = [line.split("=")[0].lower() for line in text.splitlines() if re.match(r"\w+=", line)]
    once = [key for key in keys if key not in ("nodeset", "partitionname")]
    assert len(once) == len(set(once)) > 20
    assert set(once) <= known_keys().keys()


@models
def test_no_node_is_written_down_so_that_nodes_may_come_and_go(handed_over: Handed, model: Model) -> None:
    text = handed_over(model)["slurm.conf"]
    assert "NodeName" not in text
    assert not [one.name for one in model.nodes if re.search(rf"\b{one.name}\b", text) and one.name != "head"]


def test_another_node_of_a_known_kind_leaves_slurm_conf_as_it_is(shell: Shell) -> None:
    before = on_the_head(shell, LARGE)
    join(shell, node("dgx5", "rack", "h200", 8), profile="cgroups")
    after = on_the_head(shell, LARGE)
    assert {name for name in FILES if before[name] != after[name]} == {"topology.conf", "job_submit.lua"}


def test_partitions_are_all_the_sites_the_users_own_and_the_gpu_kinds(handed_over: Handed) -> None:
    partitions = [line for line in lines(handed_over(LARGE)["slurm.conf"]) if "PartitionName" in line]
    assert [(line["PartitionName"], line["Nodes"], line["MaxTime"]) for line in partitions] == [
        ("all", "ALL", "INFINITE"),
        ("rack", "site-rack", "INFINITE"),
        ("cloud", "site-cloud", "INFINITE"),
        ("desk", "site-desk", "INFINITE"),
        ("long", "site-rack,site-cloud", "7-00:00:00"),
        ("a100", "gpu-a100", "INFINITE"),
        ("h200", "gpu-h200", "INFINITE"),
    ]
    assert [line["PartitionName"] for line in partitions if line.get("Default") == "YES"] == ["all"]


def test_a_node_brings_the_partition_of_its_site_which_may_be_outside_all(shell: Shell) -> None:
    on_the_head(shell, SMALL)
    join(shell, node("p1", "burst", "h200", 8, in_all=False), node("p2", "desk"))
    files = on_the_head(shell, SMALL)
    written = lines(files["slurm.conf"])
    assert {"NodeSet": "site-burst", "Feature": "site-burst"} in written
    partitions = {line["PartitionName"]: line for line in written if "PartitionName" in line}
    nodes = {name: partitions[name]["Nodes"] for name in ("all", "burst", "h200", "tailrack_measure")}
    outside = {"burst": "site-burst", "h200": "gpu-h200", "tailrack_measure": "ALL"}
    assert nodes == {"all": "site-cloud-a,site-cloud-b,site-desk", **outside}
    assert partitions["all"]["Default"] == "YES"
    assert 'outside_all("burst")' in files["job_submit.lua"].splitlines()
    # A site that comes back into it leaves no trace.
    join(shell, node("p1", "burst"))
    files = on_the_head(shell, SMALL)
    assert "PartitionName=all Nodes=ALL Default=YES" in files["slurm.conf"]
    assert "tailrack_measure" not in files["slurm.conf"]
    assert 'outside_all("' not in files["job_submit.lua"]


def defaults(handed_over: Handed, model: Model, key: str) -> dict[str, str | None]:
    """Return each partition's value of a key."""
    written = lines(handed_over(model)["slurm.conf"])
    return {line["PartitionName"]: line.get(key) for line in written if "PartitionName" in line}


def test_a_job_gets_a_share_of_the_memory_and_cpus_of_the_partitions_smallest_node(handed_over: Handed) -> None:
    share = {"rack": "248832", "cloud": "7360"}
    assert defaults(handed_over, LARGE, "DefMemPerCPU") == {
        "all": share["cloud"], "rack": share["rack"], "cloud": share["cloud"], "desk": None, "long": share["cloud"],
        "h200": share["cloud"], "a100": share["cloud"],
    }  # fmt: skip
    assert defaults(handed_over, LARGE, "DefCpuPerGPU") == {
        "all": "1", "rack": "1", "cloud": "2", "desk": None, "long": "1", "h200": "1", "a100": "2",
    }  # fmt: skip
    assert set(defaults(handed_over, SMALL, "DefCpuPerGPU").values()) == {None}


@pytest.mark.parametrize(("model", "key"), [(SMALL, "DefMemPerCPU"), (LARGE, "DefCpuPerGPU")], ids=["memory", "CPUs"])
def test_a_default_of_the_users_own_is_the_only_one(handed_over: Handed, model: Model, key: str) -> None:
    model = replace(model, config={**model.config, "slurm": {"settings": {key: "100"}}})
    assert set(defaults(handed_over, model, key).values()) == {None}
    assert settings(model)[key] == "100"


def test_a_node_keeps_a_share_of_its_memory_and_jobs_on_all_cpus_get_no_more_than_the_rest() -> None:
    for memory_mb, reserved_mb in ((1000, 256), (8000, 500), (64000, 4000), (256000, 8192), (2000000, 8192)):
        for cpus in (1, 2, 7, 224):
            found = memory_values(LARGE.nodes[0], cpus, memory_mb)
            shares = {line.split()[0]: int(line.split()[1]) for line in str(found["node_memory"]).splitlines()}
            assert found["node_reserved_mb"] == reserved_mb, memory_mb
            assert shares.keys() == {"ALL", "site-rack", "gpu-h200"}
            assert all(0 < share * cpus <= found["node_registered_mb"] - reserved_mb for share in shares.values())
    # It registers with a little less memory than it has, and keeps that with another kernel.
    for memory_mb in (1, 1000, 8000, 64213, 2000000):
        registered, margin = (
            memory_values(LARGE.nodes[0], 8, memory_mb)["node_registered_mb"],
            min(memory_mb // 64, 1024),
        )
        assert 0 < registered <= memory_mb - margin <= registered + 63, memory_mb


def test_the_submit_script_lists_the_gpus_of_each_node(handed_over: Handed) -> None:
    text = handed_over(LARGE)["job_submit.lua"]
    assert text.splitlines()[-5:] == [
        'member("c1", "cloud", "h200", 1)',
        'member("c2", "cloud", "a100", 4)',
        'member("dgx1", "rack", "h200", 8)',
        'member("dgx2", "rack", "h200", 8)',
        'member("dgx4", "rack", "h200", 8)',
    ]


@models
def test_every_node_set_of_a_partition_is_the_feature_of_the_same_name(handed_over: Handed, model: Model) -> None:
    written = lines(handed_over(model)["slurm.conf"])
    sets = {line["NodeSet"]: line["Feature"] for line in written if "NodeSet" in line}
    partitions = {line["PartitionName"]: line["Nodes"].split(",") for line in written if "PartitionName" in line}
    assert {name for nodes in partitions.values() for name in nodes} - {"ALL"} <= sets.keys()
    assert all(name == feature for name, feature in sets.items())
    assert len(sets) >= len(model.sites)
    assert not sets.keys() & ({one.name for one in model.nodes} | partitions.keys())


def test_keepalive_of_the_user_is_added_to_tailracks_communication_parameters() -> None:
    keepalive = {"communicationparameters": "keepalivetime=60,keepaliveprobes=3"}
    changed = replace(SMALL, config={"slurm": {"settings": keepalive}})
    expected = "NoInAddrAny,NoCtldInAddrAny,block_null_hash,keepalivetime=60,keepaliveprobes=3"
    assert f"CommunicationParameters={expected}" in changed.own_files["slurm.conf"].splitlines()
    assert "keepalive" not in SMALL.own_files["slurm.conf"]


def header_of_join(host: Host) -> Mapping[str, Value]:
    """The values with which a machine writes its own files of Slurm."""
    return cast(
        Mapping[str, Value], {**node_header(host), **machine_keys({"cgroups": True}, SMALL.settings, head_cgroups=True)}
    )


def test_each_machine_includes_its_own_line_of_gpus_which_may_be_empty(shell: Shell, handed_over: Handed) -> None:
    # By a path: a name alone would be one file for all.
    assert handed_over(LARGE)["gres.conf"].splitlines()[1:] == ["Include /etc/tailrack/gres.conf"]
    devices = {"dgx1": "[0-7]", "c1": "0", "c2": "[0-3]"}
    nodes = [one for one in LARGE.nodes if one.name in devices]
    assert len(nodes) == len(devices)
    for one in nodes:
        assert_ok(shell.step(script_of("slurm", "machine"), header_of_join(one)))
        (line,) = lines(shell.path("/etc/tailrack/gres.conf").read_text())
        kind = "a100" if one.name == "c2" else "h200"
        files = f"/dev/nvidia{devices[one.name]}"
        assert line == {"NodeName": one.name, "Name": "gpu", "Type": kind, "File": files}
    # slurmd would wait for a file that is not there.
    assert shell.step(script_of("slurm", "machine"), header_of_join(SMALL.nodes[0])).returncode == 0
    assert shell.path("/etc/tailrack/gres.conf").read_text() == "# Written by tailrack.\n"


def test_a_site_is_a_switch_and_the_tailnet_is_above_them(handed_over: Handed) -> None:
    assert lines(handed_over(LARGE)["topology.conf"]) == [
        {"SwitchName": "cloud", "Nodes": "c1,c2"},
        {"SwitchName": "rack", "Nodes": "dgx1,dgx2,dgx4"},
        {"SwitchName": "tailnet", "Switches": "cloud,rack"},  # nobody stands at desk
    ]


NODES = st.lists(
    st.builds(
        node,
        st.from_regex(r"[a-z]{1,2}[0-9]{1,2}", fullmatch=True),
        st.sampled_from(SMALL.sites),
        st.sampled_from(["h200", "a100"]),
        st.integers(1, 16),
    ),
    unique_by=lambda one: one.name,
    max_size=4,
)


@hypothesis_settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(NODES)
def test_a_node_registers_the_values_that_the_controller_expects(shell: Shell, nodes: list[Host]) -> None:
    for path in shell.path("/var/lib/tailrack/slurm/nodes").glob("*/*"):
        path.unlink()
    files = on_the_head(shell, Model(SMALL.config, SMALL.head_address, SMALL.sites, tuple(nodes), False))
    sets = {line["NodeSet"] for line in lines(files["slurm.conf"]) if "NodeSet" in line}
    for one in nodes:
        assert set(str(node_values(one)["node_features"]).split(",")) <= sets


def test_a_template_that_lacks_a_value_is_an_error_and_not_empty_text() -> None:
    with pytest.raises(UndefinedError):
        render("roles/slurm/slurm/templates/cgroup.conf.j2")


def test_the_networks_that_nodes_share_are_comments_of_the_topology_that_goes_with_their_node(shell: Shell) -> None:
    for name in ("dgx1", "dgx2"):
        shell.write(
            f"var/lib/tailrack/slurm/nodes/{name}/fabric", f"# fabric {name} 5 rack/dgx1/ib0/1 ib0 10.2.0.0/24 -\n"
        )
    told = on_the_head(shell, LARGE)["topology.conf"]
    assert [line.split()[2] for line in told.splitlines() if line.startswith("# fabric ")] == ["dgx1", "dgx2"]
    assert [line["SwitchName"] for line in lines(told)] == ["cloud", "rack", "tailnet"]
