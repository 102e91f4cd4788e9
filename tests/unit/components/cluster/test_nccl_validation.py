"""What is measured together, and what is asked of each measurement."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.measurement_jobs.scopes import Scope, kept_from, measurement_of, scopes
from components.settings.types import CROSS_SITE
from components.settings.validation import Validation
from tests.unit.recorded import Build, certificate_of

SIZES: dict[str, Any] = {"min_bytes": 65536, "max_bytes": 4194304, "factor": 4, "gate_bytes": 4194304}
SETTINGS = Validation(
    **SIZES, iterations=5, warmup=1, ranks_per_node=2, time_limit_minutes=10, floors_gb_per_s={"rack": 20.5}
)


def test_each_site_with_two_ranks_is_measured_and_all_sites_together() -> None:
    everywhere = Scope(CROSS_SITE, ("a1", "b1", "b2"), 2)
    expected: list[tuple[dict[str, str], int, tuple[Scope, ...]]] = [
        ({}, 1, ()),
        ({"a1": "a"}, 1, ()),  # one rank has nobody to talk to
        ({"a1": "a"}, 2, (Scope("a", ("a1",), 1),)),
        ({"a2": "a", "a1": "a"}, 1, (Scope("a", ("a1", "a2"), 1),)),
        ({"a1": "a", "b1": "b"}, 1, (Scope(CROSS_SITE, ("a1", "b1"), 2),)),
        ({"b1": "b", "a1": "a", "b2": "b"}, 1, (Scope("b", ("b1", "b2"), 1), everywhere)),
    ]
    assert [(sites, ranks, scopes(sites, ranks)) for sites, ranks, _ in expected] == expected


@given(
    st.dictionaries(st.from_regex("[a-z][0-9]", fullmatch=True), st.sampled_from(["rack", "cloud", "desk"])),
    st.integers(1, 8),
)
def test_every_scope_is_valid_and_has_no_node_twice(node_sites: dict[str, str], ranks_per_node: int) -> None:
    found = scopes(node_sites, ranks_per_node)
    assert len({scope.name for scope in found}) == len(found)
    for scope in found:
        asked = measurement_of(scope, SETTINGS.model_copy(update={"ranks_per_node": ranks_per_node}))
        assert asked.ranks == len(set(scope.nodes)) * ranks_per_node >= 2
        assert scope.sites == len({node_sites[node] for node in scope.nodes})
    if len(set(node_sites.values())) > 1:
        assert set(found[-1].nodes) == set(node_sites)


def test_a_site_with_two_open_mpi_releases_measures_without_mpi(build: Build, lab_config: dict[str, Any]) -> None:
    one = build(lab_config)
    gate = {"cpus": 4, "memory_mb": 8000, "kernel_nfs_server": False, "cgroups": False, "slurm_version": "24.11.5-4"}
    none = {"gpus": 0, "gpu_kind": "", "gpu_devices": [], "gpu_memory_mb": 0, "gpu_driver": "", "gpu_nvlinks": 0}
    two = build(lab_config, answers={"a1-prepare": {**gate, **none, "mpi": "4-pmix5"}})
    with_mpi, without = (json.loads(stack.header("validate-cloud-a")["plan"]) for stack in (one, two))
    assert "launch=(srun --mpi=pmix)" in with_mpi["cpu_job"]
    assert "launch=(srun --mpi=none" in without["cpu_job"]
    assert without["cpu"]["backend"] == "tcp-cpu"
    result = two.outputs["validation"]["cloud-a"]
    assert result["backend"] == "tcp-cpu"
    assert "(4 with PMIx 5 on a1; 5 with PMIx 5 on head): they were measured without MPI." in result["reason"]
    assert "Open MPI" not in two.outputs["validation"]["cross-site"]["reason"]
    assert "Open MPI" not in one.outputs["validation"]["cloud-a"]["reason"]
    assert {"validate-cloud-a", "validate-cross-site"} <= one.differences(two)


def test_a_measurement_knows_the_rdma_devices_of_jobs(build: Build, lab_config: dict[str, Any]) -> None:
    site = lab_config["sites"][0]
    for written, carried, told in (
        ({}, ["mlx5_0:1"], "auto"),
        ({}, [], "infiniband"),
        ({"rdma": "none"}, [], "none"),
        ({"rdma": ["mlx5_1"]}, [], "mlx5_1"),
        ({"fabric": "tailnet"}, [], "tailnet"),
    ):
        lab_config["sites"][0] = {**site, **written}
        proven = {"interfaces": ["eth0"], "rdma": carried, "with": [["head", "eth0"]], "note": "", "error": ""}
        stack = build(lab_config, answers={"a1-register": {"certificate": certificate_of("a1"), "fabric": proven}})
        assert json.loads(stack.header("validate-cloud-a")["plan"])["rdma"] == told


def test_a_changed_floor_reaches_the_head_node_only_with_the_next_measurement() -> None:
    first = kept_from(None, "rack", "as it is", (1.0, None))
    assert first == {"digest": "as it is", "floors": [1.0, None]}
    before = {"rack": {"measured_with": first}}
    assert kept_from(before, "rack", "as it is", (9.0, 2.0)) == first
    assert kept_from(before, "rack", "another", (9.0, 2.0)) == {"digest": "another", "floors": [9.0, 2.0]}
    assert kept_from(before, "box", "as it is", (9.0, 2.0))["floors"] == [9.0, 2.0]


@pytest.mark.parametrize(
    "text",
    ["", "null", '{"state": "COMPLETED"}\n{"state": "FAILED"}', '{"a":' * 50_000, '{"seconds": %s}' % ("9" * 5_000)],
)
def test_an_unreadable_report_ends_its_measurement_alone(build: Build, lab_config: dict[str, Any], text: str) -> None:
    results = build(lab_config, answers={"validate-cloud-a": text}).outputs["validation"]
    assert (results["cloud-a"]["verdict"], results["cross-site"]["verdict"]) == ("INCONCLUSIVE", "INCONCLUSIVE")
    assert "The report cannot be read" in results["cloud-a"]["reason"]
    assert "The report cannot be read" not in results["cross-site"]["reason"]


def test_gpus_decide_the_plan_and_repeat_the_measurement(build: Build, hosts_config: dict[str, Any]) -> None:
    told = json.loads(build(hosts_config).header("validate-rack")["plan"])
    assert told["gpus"] == {"dgx1": "h200:8", "dgx2": "h200:8", "box1": "rtx4090:1"}
    assert (told["nccl"]["collective"], told["nccl"]["runs"], told["spans"]) == ("all_reduce", 3, False)
    assert told["about"]["nodes"]["dgx1"].keys() == {"address", "site", "gpus"}
    assert "TAILRACK_COLLECTIVES=all_reduce" in told["build"].splitlines()
