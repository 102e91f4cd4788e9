"""The outputs of a stack, which other programs rely on."""

import json
import runpy
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pulumi
import pytest

from components.settings.types import NodeSettings
from stacks.outputs import headline, node_output
from tests.unit.configs import RawConfig
from tests.unit.recorded import Build, record

PROJECT = Path(__file__).parents[4]
FACTS = {"cpus": 64, "memory_mb": 515000, "gpus": 8, "slurm_version": "1:24.11.5-4+deb13u1", "os": "debian 13"}
VERSIONS = {"slurm_version": "24.11.5", "tailscale_version": "1.102.5"}


def on_gpus(gb_per_s: float, nodes: str, verdict: str = "PASS") -> dict[str, Any]:
    """As much of a result between GPUs as the headline is made of."""
    return {
        "backend": "nccl-tests", "verdict": verdict, "busbw_gb_per_s": gb_per_s, "nodes": list(nodes),
        "ranks": len(nodes),
    }  # fmt: skip


def test_a_note_names_nodes_that_allow_logins_without_a_job(build: Build, lab_config: RawConfig) -> None:
    expected = "Users can SSH without a job to {}, because Slurm does not confine jobs with cgroups there "
    for confined, wanted, named in ((False, True, ["a1, b1"]), (True, True, ["b1"]), (False, False, [])):
        lab_config["slurm"] = {"ssh_needs_job": wanted}
        answers = {"head-prepare": {"cgroups": True}, "a1-prepare": {"cgroups": confined}}
        notes = build(lab_config, answers=answers).outputs["cluster"]["notes"]
        assert notes == [f"{expected.format(names)}(tailrack:slurm.ssh_needs_job)." for names in named]


@pytest.mark.parametrize(
    ("answers", "parts"),
    [
        (
            {"door-head": {"own_file_system": False}},
            [
                "/export/shared does not have its own file system: ",
                "Mount a disk or a volume at /export/shared on door.",
            ],
        ),
        (
            {"door-prepare": {"open_ports": [111, 2049]}},
            ["door also uses NFS outside the cluster: its ports 111, 2049 stay open on its other networks"],
        ),
        *(
            (
                {"door-head": {"user_limits": reason}},
                [
                    "One user can use up the memory and the processes of door, because ",
                    part,
                    "(tailrack:head.user_limits).",
                ],
            )
            for reason, part in (
                ("controllers", "systemd there controls no memory, CPU or tasks"),
                ("logins", "install libpam-systemd on door"),
            )
        ),
    ],
)
def test_a_note_names_a_limit(build: Build, hosts_config: RawConfig, answers: dict[str, Any], parts: list[str]) -> None:
    hosts_config["slurm"] = {"ssh_needs_job": False}
    assert build(hosts_config).outputs["cluster"]["notes"] == []
    (note,) = build(hosts_config, answers=answers).outputs["cluster"]["notes"]
    assert note.startswith(parts[0])
    assert [part for part in parts if part not in note] == []
    assert len(parts) == 1 or note.endswith(parts[-1])


def test_a_note_names_folders_of_groups_that_the_config_no_longer_has(build: Build, lab_config: RawConfig) -> None:
    lab_config["slurm"] = {"ssh_needs_job": False}
    (note,) = build(lab_config, answers={"head-head": {"left_groups": ["nlp", "vision"]}}).outputs["cluster"]["notes"]
    assert "/export/shared/groups/nlp /export/shared/groups/vision on head" in note


def test_the_cluster_output_names_partitions_and_the_heads_address(build: Build, lab_config: RawConfig) -> None:
    lab_config["slurm"] = {"partitions": [{"name": "long", "sites": ["cloud-a"], "max_time": "2-00:00:00"}]}
    cluster = build(lab_config, answers={"head-prepare": {"tailnet_ip": "100.64.0.1"}}).outputs["cluster"]
    assert cluster["name"] == "lab"
    assert cluster["control_address"] == "100.64.0.1"
    assert cluster["partitions"] == ["all", "cloud-a", "cloud-b", "long"]


def test_the_nodes_output_lists_the_head_first_and_facts_of_machines(build: Build, lab_config: RawConfig) -> None:
    answers = {
        "b1-prepare": {"cpus": 16, "gpus": 2, "tailnet_ip": "100.64.0.3"},
        "b1-register": {"path": "relay"},
    }
    nodes = build(lab_config, answers=answers).outputs["cluster"]["nodes"]
    places = [(node["name"], node["site"]) for node in nodes]
    assert places == [("head", "cloud-a"), ("a1", "cloud-a"), ("b1", "cloud-b")]
    machine = {"cpus": 16, "memory_mb": 8000, "gpus": 2, "path": "relay", "tailnet_ip": "100.64.0.3"}
    assert nodes[2] == {"name": "b1", "site": "cloud-b", **machine, **VERSIONS, "price_per_hour": None}
    assert nodes[1]["path"] == "direct"


def test_a_node_shows_slurms_own_version_and_nothing_beyond_the_contract() -> None:
    machine = {"cpus": 64, "memory_mb": 515000, "gpus": 8, "tailnet_ip": "100.64.0.7"}
    expected = {"name": "dgx1", "site": "rack", **machine, **VERSIONS}
    facts = {**FACTS, **machine, **VERSIONS, "slurm_version": FACTS["slurm_version"]}
    assert node_output(NodeSettings(name="dgx1", site="rack"), facts, True) == expected


def test_a_failed_job_is_a_result_and_not_an_error(build: Build, lab_config: RawConfig) -> None:
    failed = {"state": "FAILED", "exit_code": 1, "output": "srun: error: a1: task 0: Exited\n"}
    outputs = build(lab_config, answers={"validate-cross-site": failed}).outputs
    assert outputs["validation"]["cross-site"]["verdict"] == "FAIL"
    assert "a1: task 0: Exited" in outputs["validation"]["cross-site"]["reason"]
    assert outputs["busbw_gb_per_s"] is None


@pytest.mark.parametrize(
    ("validation", "expected"),
    [
        ({}, None),
        ({"rack": {"busbw_gb_per_s": 365.08}}, 365.08),
        ({"rack": {"busbw_gb_per_s": 365.08}, "cross-site": {"busbw_gb_per_s": 0.7}}, 0.7),
        ({"rack": {"busbw_gb_per_s": 365.08}, "cross-site": {"busbw_gb_per_s": None}}, None),
        ({"rack": {"busbw_gb_per_s": 0}}, 0.0),
        # The largest scope that was judged on GPUs, before all else.
        ({"rack": on_gpus(365.0, "ab"), "cross-site": {"busbw_gb_per_s": 0.7}}, 365.0),
        ({"rack": on_gpus(365.0, "ab"), "box": on_gpus(300.0, "cde")}, 300.0),
        ({"rack": on_gpus(365.0, "ab"), "cross-site": on_gpus(0.7, "abc")}, 0.7),
        ({"rack": on_gpus(365.0, "ab"), "cross-site": on_gpus(0.7, "abc", "UNJUDGED")}, 365.0),
        ({"node": {"a": on_gpus(350.0, "a")}, "cross-site": {"busbw_gb_per_s": 0.01}}, 350.0),
        ({"node": {"a": on_gpus(350.0, "a", "UNJUDGED")}, "rack": on_gpus(3.0, "ab", "UNJUDGED")}, 3.0),
        ({"node": {"a": on_gpus(350.0, "a", "UNJUDGED")}}, None),
        # Nothing over wrong data, runs that differ, or a table that contradicts itself.
        ({"rack": {**on_gpus(365.0, "ab", "FAIL"), "wrong": 7}, "cross-site": on_gpus(0.7, "a")}, None),
        ({"rack": on_gpus(365.0, "ab", "UNSTABLE"), "node": {"a": on_gpus(350.0, "a")}}, None),
        ({"rack": on_gpus(365.0, "ab", "INCONCLUSIVE"), "node": {"a": on_gpus(350.0, "a")}}, None),
        ({"rack": {"busbw_gb_per_s": 4.0, "verdict": "FAIL", "wrong": 7}}, None),
    ],
)
def test_the_headline_is_one_bandwidth(validation: dict[str, dict[str, float | None]], expected: float | None) -> None:
    assert headline(validation) == expected


# The program itself.


def run_main(monkeypatch: pytest.MonkeyPatch, config: RawConfig) -> dict[str, Any]:
    exported: dict[str, Any] = {}
    values = {f"tailrack:{key}": json.dumps(value) for key, value in config.items()}
    monkeypatch.setenv("PULUMI_CONFIG", json.dumps(values))
    monkeypatch.setattr(pulumi, "export", exported.__setitem__)
    mains: list[Callable[[], Awaitable[None]]] = []
    monkeypatch.setattr(pulumi, "run", mains.append)

    async def program() -> dict[str, Any]:
        runpy.run_path(str(PROJECT / "__main__.py"))
        await mains[0]()
        return exported

    return dict(record(program).outputs)


def test_a_bad_config_is_refused_with_its_reasons_alone(monkeypatch: pytest.MonkeyPatch, lab_config: RawConfig) -> None:
    lab_config["head"]["site"] = "moon"
    with pytest.raises(pulumi.RunError, match=r"tailrack:head\.site") as refused:
        run_main(monkeypatch, lab_config)
    assert refused.value.__suppress_context__
