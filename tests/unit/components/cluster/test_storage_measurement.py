"""The storage measurement as a step of a stack: its plan, when it is measured again, and what the stack outputs."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from components.measurement_jobs.job_plans import STORAGE, targets
from components.roles.program import command_line
from components.validation.storage_figures import line_of
from stacks.config import parse
from tests.unit.configs import LAB, refused
from tests.unit.recorded import Build

STEP = f"validate-{STORAGE}"
RUNS = {name: [3, 3, 3] for name in ("write_mb_per_s", "read_mb_per_s", "files_per_s", "latency_us", "latency_p99_us")}


def with_storage(config: dict[str, Any], **storage: Any) -> dict[str, Any]:
    changed = copy.deepcopy(config)
    changed["validation"]["storage"] = storage
    return changed


def with_scratch(config: dict[str, Any]) -> dict[str, Any]:
    return {**copy.deepcopy(config), "scratch": {"folder": "/var/lib/scratch"}}


def test_without_the_key_there_is_neither_step_nor_output_nor_package(build: Build, lab_config: dict[str, Any]) -> None:
    stack = build(lab_config)
    assert STEP not in stack.names
    assert STORAGE not in stack.outputs
    # The measurement changes nothing on machines except for one package.
    changed = {name for name in build(with_storage(lab_config)).differences(stack) if name.endswith("-node")}
    assert changed <= {"a1-node", "b1-node"}


def test_it_measures_the_share_and_scratch_on_all_nodes_as_a_user(build: Build, lab_config: dict[str, Any]) -> None:
    header = build(with_storage(with_scratch(lab_config), size="64M", seconds=4)).values(STEP)
    assert (header["scope"], header["run_as"]) == ("storage_measurement", "ada")
    assert header["driver"] == command_line("measure-storage")
    plan = json.loads(header["plan"])
    found = [(target["name"], target["path"], target["shared"]) for target in plan["targets"]]
    assert found == [("share", "/shared", True), ("scratch", "/var/lib/scratch", False)]
    assert all((target["size"], target["seconds"]) == (2**26, 4) for target in plan["targets"])
    assert "storage-job" in plan["job"]


def test_a_checkpoint_has_a_rank_for_each_gpu_and_more_time(build: Build, lab_config: dict[str, Any]) -> None:
    before = build(with_storage(lab_config))
    stack = build(with_storage(lab_config, checkpoint_size="64M"))
    (target,) = json.loads(stack.values(STEP)["plan"])["targets"]
    assert (target["checkpoint"], target["ranks"]) == (2**26, {"a1": 1, "b1": 1, "head": 1})
    assert int(stack.values(STEP)["run_limit"]) - int(before.values(STEP)["run_limit"]) == 1200
    assert stack[STEP].inputs["triggers"] != before[STEP].inputs["triggers"]


def test_a_floor_measures_nothing_again_and_size_seconds_and_rerun_do(build: Build, lab_config: dict[str, Any]) -> None:
    before = build(with_storage(lab_config))[STEP].inputs["triggers"]
    floors = [{"target": "share", "read_mb_per_s": 5}]
    assert build(with_storage(lab_config, floors=floors))[STEP].inputs["triggers"] == before
    assert build(with_storage(lab_config, seconds=5))[STEP].inputs["triggers"] != before
    assert build(with_storage(lab_config, size="2G"))[STEP].inputs["triggers"] != before
    again = with_storage(lab_config)
    again["validation"]["rerun"] = "once more"
    assert build(again)[STEP].inputs["triggers"] != before


def test_floors_judge_the_nodes_of_their_sites(build: Build, lab_config: dict[str, Any]) -> None:
    nodes = ["a1", "b1"]
    report = {
        "state": "COMPLETED", "job_id": 7, "exit_code": 0, "seconds": 9, "nodes": nodes,
        "output": "\n".join(line_of(node, "share", runs=dict(RUNS)) for node in nodes),
    }  # fmt: skip
    of_b = {"target": "share", "read_mb_per_s": 5, "sites": ["cloud-b"]}
    of_a = {"target": "share", "files_per_s": 1, "sites": ["cloud-a"]}
    result = build(with_storage(lab_config, floors=[of_b, of_a]), answers={STEP: report}).outputs[STORAGE]
    assert result["verdict"] == "FAIL"
    assert result["reason"] == "share on b1: 3 MB/s read, below the floor of 5."
    assert result["nodes"]["a1"]["share"]["verdict"] == "PASS"


READ = {"target": "share", "read_mb_per_s": 5}


def floors(*listed: dict[str, Any]) -> dict[str, Any]:
    return {"floors": [*listed]}


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        ({"size": "128G"}, "storage.size: '128G' is not a size from 1M to 64G; write one such as 1G"),
        ({"size": "4K"}, "storage.size: '4K' is not a size from 1M to 64G; write"),
        ({"size": "big"}, "storage.size: 'big' is not"),
        ({"checkpoint_size": "2K"}, "storage.checkpoint_size: '2K' is not a size from 1M to 64G"),
        ({"checkpoint_size": "128G"}, "storage.checkpoint_size: '128G' is not a size from 1M to 64G"),
        ({"checkpoint_size": "much"}, "storage.checkpoint_size: 'much' is not"),
        ({"seconds": 1}, "storage.seconds: 1 is not a whole number from 2 to 600"),
        ({"nodes": ["nobody"]}, "storage.nodes[0]: 'nobody' is not a node that runs jobs"),
        (floors({"target": "shre", "read_mb_per_s": 5}), "floors[0].target: 'shre' is not a measured target"),
        (floors({"target": "shre", "read_mb_per_s": 5}), "did you mean 'share'?"),
        (floors({"target": "scratch", "read_mb_per_s": 5}), "scratch is not measured without tailrack:scratch.folder"),
        (floors({**READ, "sites": ["moon"]}), "floors[0].sites[0]: 'moon' is not a site of this stack"),
        (floors({"target": "share"}), "floors[0]: has no floor; its target would be UNJUDGED; write one of write"),
        (
            floors(READ, {"target": "share", "latency_us": 5, "sites": ["cloud-a"]}),
            "floors[1]: judges share at the same sites as tailrack:validation.storage.floors[0]",
        ),
        (floors({"target": "share", "read_mb_per_s": 0}), "floors[0].read_mb_per_s: 0 is not"),
        (floors({"target": "share", "latency_us": "low"}), "floors[0].latency_us: 'low' is not"),
        ({"floors": {"share": 5}}, "validation.storage.floors"),
        ({"gpus": 2}, "validation.storage.gpus"),
    ],
)
def test_a_measurement_that_cannot_be_made_or_judged_is_refused(storage: dict[str, Any], words: str) -> None:
    assert words in str(refused(parse, with_storage(LAB, **storage), base_dir=Path()))


def test_a_measurement_of_hours_is_refused_unless_it_lists_nodes() -> None:
    config = copy.deepcopy(LAB)
    config["sites"][1]["pools"] = [{"name": "p", "count": 400}]
    error = str(refused(parse, with_storage(config), base_dir=Path()))
    assert "nodes, one after another, would take about 6" in error
    assert "list fewer nodes in `nodes`" in error
    parse(with_storage(config, nodes=["p1", "p2"]), base_dir=Path())
    config["validation"]["nodes"] = ["p1", "p2"]
    parse(with_storage(config), base_dir=Path())


def test_mounts_are_measured_on_the_nodes_of_their_sites_and_have_floors_by_their_path() -> None:
    mounts = [{"path": "/data", "source": "10.0.0.5:/export", "sites": ["cloud-a"]}, {"path": "/fs", "type": "present"}]
    floors = [{"target": "/data", "read_mb_per_s": 100}]
    raw = {**with_storage(with_scratch(LAB), floors=floors), "storage": {"mounts": mounts}}
    sites = {target.name: target.sites for target in targets(parse(raw, base_dir=Path()))}
    assert sites == {"share": (), "/data": ("cloud-a",), "/fs": (), "scratch": ()}
