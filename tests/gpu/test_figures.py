"""What the cluster measures of GPUs is what a person measures by hand, and a floor is a floor."""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from tests.gpu import by_hand
from tests.gpu.cluster import LOW, GpuCluster
from tests.gpu.machines import FABRIC, PLACE, PROGRAM

ROUNDS = 3
# NVLink's runs differ by 2 %, their medians by less than 1 %.
WITHIN = 0.01
# By scope: size in bytes, timed runs of it, runs before them. Enough of them that one run takes seconds.
ASKED = {"node": (8 << 30, 20, 5), "rack": (256 << 20, 20, 5)}

pytestmark = pytest.mark.usefixtures("real")


def asked(scope: str, **nccl: Any) -> dict[str, Any]:
    """The measurement of one size alone, as the config says it."""
    size, iterations, warmup = ASKED[scope]
    sizes = dict.fromkeys(("min_bytes", "max_bytes", "gate_bytes", "socket_max_bytes"), size)
    return {"program": PROGRAM, "iterations": iterations, "warmup": warmup, **sizes, **nccl}


def result(cluster: GpuCluster, scope: str) -> dict[str, Any]:
    """What the outputs say of a scope now."""
    validation = cluster.deployment().outputs()["validation"]
    found: dict[str, Any] = validation["node"]["c"] if scope == "node" else validation[scope]
    return found


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "alltoall"])
@pytest.mark.parametrize(("scope", "nodes", "count"), [("node", "c", 4), ("node", "c", 2), ("rack", "ab", 1)])
def test_busbw_is_that_of_the_same_program_by_hand(
    cluster: GpuCluster, scope: str, nodes: str, count: int, collective: str
) -> None:
    machines = [cluster.machines[name] for name in nodes]
    cluster.need(count)
    interface, name = FABRIC if len(nodes) > 1 else "eth0", f"{collective}-{nodes}-{count}"
    program = PROGRAM.replace("all_reduce", collective)
    hand, measured, runs = [], [], []
    for number in range(ROUNDS):
        hand.append(by_hand.bandwidth(machines, count, interface, collective, *ASKED[scope]))
        nccl = asked(scope, program=program, collective=collective, gpus_per_node=count)
        cluster.measured(nodes=[*nodes], nccl=nccl, rerun=f"{name} {number}")
        found = result(cluster, scope)
        assert (found["backend"], found["gate_bytes"], found["wrong"]) == ("nccl-tests", ASKED[scope][0], 0)
        measured.append(found["busbw_gb_per_s"])
        runs.append(found["spread"]["runs"])
    reference = statistics.median(hand)
    single = [*hand, *(run for three in runs for run in three)]
    difference, scatter = statistics.median(measured) / reference - 1, (max(single) - min(single)) / reference
    kept = {"by_hand": hand, "measured": measured, "runs": runs, "difference": difference, "scatter": scatter}
    (PLACE / "out" / f"figures-{name}.json").write_text(json.dumps({**kept, "transport": found["transport"]}))
    # Sound sockets, and all_gather between two GPUs, differ by more from run to run: what differs less is the same.
    assert abs(difference) <= max(WITHIN, scatter), kept


def test_four_collectives_are_measured_in_one_job_whose_process_drives_two_gpus(cluster: GpuCluster) -> None:
    cluster.need(2)
    more = ["all_gather", "alltoall", "reduce_scatter"]
    nccl = asked("node", program=str(Path(PROGRAM).parent), more_collectives=more, gpus_per_node=2, gpus_per_process=2)
    cluster.measured(nodes=["c"], nccl=nccl, rerun="four")
    found = result(cluster, "node")
    assert (found["verdict"], found["ranks"], found["collective"]) == ("PASS", 2, "all_reduce")
    bandwidths = {name: other["busbw_gb_per_s"] for name, other in found["collectives"].items() if other["wrong"] == 0}
    (PLACE / "out" / "figures-four.json").write_text(json.dumps(bandwidths | {"all_reduce": found["busbw_gb_per_s"]}))
    assert sorted(bandwidths) == more
    assert min(bandwidths.values()) > LOW["node"]


def test_a_floor_above_the_measured_value_fails_without_another_measurement(cluster: GpuCluster) -> None:
    cluster.need(2)
    nccl = asked("node")
    cluster.measured(nodes=["c"], nccl=nccl, rerun="floor", floors_gb_per_s={"node": 1})
    before = result(cluster, "node")
    assert before["verdict"] == "PASS"
    floor = before["busbw_gb_per_s"] * 1.1
    cluster.measured(nodes=["c"], nccl=nccl, rerun="floor", floors_gb_per_s={"node": floor})
    after = result(cluster, "node")
    assert (after["verdict"], after["floor_gb_per_s"]) == ("FAIL", floor)
    assert (after["job_id"], after["busbw_gb_per_s"]) == (before["job_id"], before["busbw_gb_per_s"])
