"""slurm.conf and its kin as text: whole files as snapshots, and what must hold in every one of them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from syrupy.assertion import SnapshotAssertion

from components.config_files.render import render
from components.config_files.slurm import (
    NodeEntry,
    PartitionEntry,
    SlurmModel,
    all_partitions,
    controller_files,
    gres_conf,
    node_features,
    node_gres,
    slurm_conf,
    topology_conf,
)
from components.roles.slurm.settings import known_keys

SMALL = SlurmModel(
    cluster_name="lab",
    head_name="head",
    head_address="100.64.0.1",
    sites=("cloud-a", "cloud-b"),
    nodes=(NodeEntry("head", "cloud-a"), NodeEntry("a1", "cloud-a"), NodeEntry("b1", "cloud-b")),
    cgroups=False,
)
LARGE = SlurmModel(
    cluster_name="prod",
    head_name="door",
    head_address="100.64.0.9",
    sites=("rack", "cloud", "desk"),
    nodes=(
        *(NodeEntry(f"dgx{number}", "rack", ("h200", 8)) for number in (1, 2, 4)),
        NodeEntry("c1", "cloud", ("h200", 1)),
        NodeEntry("c2", "cloud", ("a100", 4)),
    ),
    partitions=(PartitionEntry("long", ("site-rack", "site-cloud"), "7-00:00:00"),),
    settings={"KillWait": "45", "CompleteWait": "10"},
)
FILES = ("slurm.conf", "gres.conf", "topology.conf", "cgroup.conf", "mpi.conf", "job_submit.lua")
models = pytest.mark.parametrize("model", [SMALL, LARGE], ids=["small", "large"])


def settings(model: SlurmModel) -> dict[str, str]:
    """The keys of slurm.conf that have a line of their own. (slurmutils refuses Slurm's own YES and UP.)"""
    return {key: value for line in lines(slurm_conf(model)) if len(line) == 1 for key, value in line.items()}


def lines(text: str) -> list[dict[str, str]]:
    """Every line of `key=value key=value` that is no comment."""
    kept = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [dict(word.split("=", 1) for word in line.split()) for line in kept]


@models
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_as_it_was(model: SlurmModel, name: str, snapshot: SnapshotAssertion) -> None:
    assert controller_files(model)[name] == snapshot


@models
def test_the_controllers_files_are_these_six(model: SlurmModel) -> None:
    assert tuple(controller_files(model)) == FILES


@models
def test_every_file_names_its_author_first(model: SlurmModel) -> None:
    for text in controller_files(model).values():
        assert "Written by tailrack." in text.splitlines()[0]


@models
def test_slurm_listens_on_the_tailnet_and_serves_its_configuration(model: SlurmModel) -> None:
    conf = settings(model)
    assert conf["ClusterName"] == model.cluster_name
    assert conf["SlurmctldHost"] == f"{model.head_name}({model.head_address})"
    assert conf["SlurmctldParameters"] == "enable_configless"
    parameters = set(conf["CommunicationParameters"].split(","))
    assert parameters == {"NoInAddrAny", "NoCtldInAddrAny", "block_null_hash"}
    assert conf["SrunPortRange"] == "60001-60999"


@models
def test_the_limits_fit_a_tailnet(model: SlurmModel) -> None:
    conf = settings(model)
    assert (conf["TCPTimeout"], conf["MessageTimeout"], conf["SlurmdTimeout"]) == ("10", "30", "180")
    assert int(conf["UnkillableStepTimeout"]) >= 5 * int(conf["MessageTimeout"])  # slurm.conf(5)
    assert int(conf["TreeWidth"]) == int(conf["MaxNodeCount"]) >= len(model.nodes)
    assert conf["ReturnToService"] == "2"


@models
def test_every_key_is_one_that_slurm_knows_and_is_there_once(model: SlurmModel) -> None:
    keys = [line.split("=")[0].lower() for line in slurm_conf(model).splitlines() if re.match(r"\w+=", line)]
    once = [key for key in keys if key not in ("nodeset", "partitionname")]
    assert len(once) == len(set(once)) > 20
    assert set(once) <= known_keys().keys()


@models
def test_no_node_is_written_down_so_that_nodes_may_come_and_go(model: SlurmModel) -> None:
    text = slurm_conf(model)
    assert "NodeName" not in text
    assert not [node.name for node in model.nodes if re.search(rf"\b{node.name}\b", text) and node.name != "head"]


def test_another_node_of_a_known_kind_leaves_slurm_conf_as_it_is() -> None:
    grown = replace(LARGE, nodes=(*LARGE.nodes, NodeEntry("dgx5", "rack", ("h200", 8))))
    before, after = controller_files(LARGE), controller_files(grown)
    assert {name for name in FILES if before[name] != after[name]} == {"gres.conf", "topology.conf"}


def test_partitions_are_all_the_sites_the_gpu_kinds_and_the_users_own() -> None:
    partitions = [line for line in lines(slurm_conf(LARGE)) if "PartitionName" in line]
    assert [(line["PartitionName"], line["Nodes"], line["MaxTime"]) for line in partitions] == [
        ("all", "ALL", "INFINITE"),
        ("rack", "site-rack", "INFINITE"),
        ("cloud", "site-cloud", "INFINITE"),
        ("desk", "site-desk", "INFINITE"),
        ("a100", "gpu-a100", "INFINITE"),
        ("h200", "gpu-h200", "INFINITE"),
        ("long", "site-rack,site-cloud", "7-00:00:00"),
    ]
    assert [line["PartitionName"] for line in partitions if line.get("Default") == "YES"] == ["all"]


@models
def test_every_node_set_of_a_partition_is_there_and_is_a_feature_of_the_same_name(model: SlurmModel) -> None:
    written = lines(slurm_conf(model))
    sets = {line["NodeSet"]: line["Feature"] for line in written if "NodeSet" in line}
    used = {name for entry in all_partitions(model) for name in entry.node_sets}
    assert used <= sets.keys()
    assert all(name == feature for name, feature in sets.items())


@models
def test_a_node_set_never_has_the_name_of_a_node_or_a_partition(model: SlurmModel) -> None:
    sets = {line["NodeSet"] for line in lines(slurm_conf(model)) if "NodeSet" in line}
    assert len(sets) >= len(model.sites)
    assert not sets & {node.name for node in model.nodes}
    assert not sets & {entry.name for entry in all_partitions(model)}


def test_settings_of_the_user_come_last_and_sorted() -> None:
    assert slurm_conf(LARGE).splitlines()[-2:] == ["CompleteWait=10", "KillWait=45"]


def test_jobs_are_confined_by_cgroups_only_where_there_are_any() -> None:
    confined, not_confined = settings(LARGE), settings(SMALL)
    assert (confined["ProctrackType"], confined["TaskPlugin"]) == ("proctrack/cgroup", "task/affinity,task/cgroup")
    assert (not_confined["ProctrackType"], not_confined["TaskPlugin"]) == ("proctrack/linuxproc", "task/none")
    assert "CgroupPlugin=disabled" in controller_files(SMALL)["cgroup.conf"]
    assert "ConstrainDevices=yes" in controller_files(LARGE)["cgroup.conf"]


def test_each_kind_and_count_of_gpus_is_a_line_with_its_type_and_its_devices() -> None:
    assert lines(gres_conf(LARGE)) == [
        {"NodeName": "c2", "Name": "gpu", "Type": "a100", "File": "/dev/nvidia[0-3]"},
        {"NodeName": "c1", "Name": "gpu", "Type": "h200", "File": "/dev/nvidia0"},
        {"NodeName": "dgx[1-2,4]", "Name": "gpu", "Type": "h200", "File": "/dev/nvidia[0-7]"},
    ]
    assert lines(gres_conf(SMALL)) == []


def test_a_site_is_a_switch_and_the_tailnet_is_above_them() -> None:
    assert lines(topology_conf(LARGE)) == [
        {"SwitchName": "rack", "Nodes": "dgx[1-2,4]"},
        {"SwitchName": "cloud", "Nodes": "c[1-2]"},
        {"SwitchName": "tailnet", "Switches": "rack,cloud"},  # nobody stands at desk
    ]


def test_a_cluster_without_nodes_has_no_switch_at_all() -> None:
    assert lines(topology_conf(replace(SMALL, nodes=()))) == []


def test_a_node_registers_its_site_its_gpus_and_the_users_features() -> None:
    dgx = NodeEntry("dgx1", "rack", ("h200", 8))
    assert node_features(dgx, ("nvlink", "ib")) == ("site-rack", "gpu-h200", "nvlink", "ib")
    assert node_gres(dgx) == "gpu:h200:8"
    assert node_features(NodeEntry("a1", "desk")) == ("site-desk",)
    assert node_gres(NodeEntry("a1", "desk")) == ""


NODES = st.lists(
    st.builds(
        NodeEntry,
        st.from_regex(r"[a-z]{1,2}[0-9]{1,2}", fullmatch=True),
        st.sampled_from(SMALL.sites),
        st.none() | st.tuples(st.sampled_from(["h200", "a100"]), st.integers(1, 16)),
    ),
    unique_by=lambda node: node.name,
    max_size=12,
)


@given(NODES)
def test_what_a_node_registers_is_what_the_controller_expects_of_it(nodes: list[NodeEntry]) -> None:
    model = replace(SMALL, nodes=tuple(nodes))
    written = lines(slurm_conf(model))
    sets = {line["NodeSet"] for line in written if "NodeSet" in line}
    for node in nodes:
        assert set(node_features(node)) <= sets
    gres = {(line["Type"], line["File"].count("-")) for line in lines(gres_conf(model))}
    assert gres == {(node.gpu[0], int(node.gpu[1] > 1)) for node in nodes if node.gpu}


def test_a_template_that_lacks_a_value_is_an_error_and_not_empty_text() -> None:
    with pytest.raises(UndefinedError):
        render("cgroup.conf")
