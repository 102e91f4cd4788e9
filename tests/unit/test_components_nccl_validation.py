"""What is measured together, and what is asked of each measurement."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components.nccl_validation import Scope, measurement_of, scopes
from components.settings.types import CROSS_SITE
from components.settings.validation import Validation
from tests.unit.recorded import Build

SETTINGS = Validation(
    min_bytes=65536,
    max_bytes=4194304,
    factor=4,
    iterations=5,
    warmup=1,
    gate_bytes=4194304,
    ranks_per_node=2,
    time_limit_minutes=10,
    floors_gb_per_s={"rack": 20.5},
)


@pytest.mark.parametrize(
    ("node_sites", "ranks_per_node", "expected"),
    [
        ({}, 1, ()),
        ({"a1": "a"}, 1, ()),  # one rank has nobody to talk to
        ({"a1": "a"}, 2, (Scope("a", ("a1",), 1),)),
        ({"a2": "a", "a1": "a"}, 1, (Scope("a", ("a1", "a2"), 1),)),
        ({"a1": "a", "b1": "b"}, 1, (Scope(CROSS_SITE, ("a1", "b1"), 2),)),
        (
            {"b1": "b", "a1": "a", "b2": "b"},
            1,
            (Scope("b", ("b1", "b2"), 1), Scope(CROSS_SITE, ("a1", "b1", "b2"), 2)),
        ),
    ],
)
def test_each_site_with_two_ranks_is_measured_and_all_sites_together(
    node_sites: dict[str, str], ranks_per_node: int, expected: tuple[Scope, ...]
) -> None:
    assert scopes(node_sites, ranks_per_node) == expected


@given(
    st.dictionaries(st.from_regex("[a-z][0-9]", fullmatch=True), st.sampled_from(["rack", "cloud", "desk"])),
    st.integers(1, 8),
)
def test_every_scope_can_be_asked_for_and_no_node_is_measured_twice_in_it(
    node_sites: dict[str, str], ranks_per_node: int
) -> None:
    found = scopes(node_sites, ranks_per_node)
    assert len({scope.name for scope in found}) == len(found)
    for scope in found:
        asked = measurement_of(scope, SETTINGS.model_copy(update={"ranks_per_node": ranks_per_node}))
        assert asked.ranks == len(set(scope.nodes)) * ranks_per_node >= 2
        assert scope.sites == len({node_sites[node] for node in scope.nodes})
    if len(set(node_sites.values())) > 1:
        assert set(found[-1].nodes) == set(node_sites)


def test_a_measurement_is_judged_by_the_floor_of_its_own_scope() -> None:
    rack = measurement_of(Scope("rack", ("a1", "a2"), 1), SETTINGS)
    assert (rack.ranks, rack.nodes, rack.floor_gb_per_s) == (4, 2, 20.5)
    assert (rack.min_bytes, rack.max_bytes, rack.factor, rack.gate_bytes) == (65536, 4194304, 4, 4194304)
    assert measurement_of(Scope(CROSS_SITE, ("a1", "b1"), 2), SETTINGS).floor_gb_per_s is None


def test_a_site_is_measured_with_its_own_mpi_and_what_lies_between_sites_without_one() -> None:
    assert measurement_of(Scope("rack", ("a1", "a2"), 1), SETTINGS).backend == "mpi-cpu"
    assert measurement_of(Scope(CROSS_SITE, ("a1", "b1"), 2), SETTINGS).backend == "tcp-cpu"


def test_the_job_and_the_step_have_room_for_the_time_limit(build: Build, lab_config: dict[str, Any]) -> None:
    lab_config["validation"]["time_limit_minutes"] = 7
    stack = build(lab_config)
    header = stack.header("validate-cross-site")
    assert "#SBATCH --time=7\n" in header["JOB_SCRIPT"]
    (limit,) = re.findall(r"timeout -k 30 (\d+) ", stack["validate-cross-site"].inputs["create"])
    assert 7 * 60 < int(header["RUN_LIMIT"]) < int(limit) - int(header["QUEUE_LIMIT"])


def test_the_job_spans_as_many_sites_as_its_scope(build: Build, lab_config: dict[str, Any]) -> None:
    stack = build(lab_config)
    assert "#SBATCH --switches=2\n" in stack.header("validate-cross-site")["JOB_SCRIPT"]
    assert "#SBATCH --switches=1\n" in stack.header("validate-cloud-a")["JOB_SCRIPT"]


def test_the_step_carries_the_program_that_the_job_runs_and_submits_as_a_user(
    build: Build, lab_config: dict[str, Any]
) -> None:
    header = build(lab_config).header("validate-cloud-a")
    assert header["RUN_AS"] == "ada"
    assert header["SCOPE"] == "cloud-a"
    compile(header["PROGRAM"], "all_reduce_perf.py", "exec")
    assert "all_reduce" in header["PROGRAM"]
    compile(header["RING"], "tcp_ring.py", "exec")
    assert "from tcp_ring import " in header["PROGRAM"]
