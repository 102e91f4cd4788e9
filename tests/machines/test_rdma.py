"""A node that is added, and the RDMA devices that it shares with the one that is there: Soft-RoCE, by the kernel."""

import pytest

from tests.lab.cluster import as_user
from tests.machines.cluster import MachineCluster
from tests.machines.machines import Machine, boot

PAIR = "srun -N2 -w n1,n2 --mem=100"


@pytest.fixture(scope="module", autouse=True)
def joined(cluster: MachineCluster, machines: dict[str, Machine]) -> str:
    """n2 has joined while a job ran on n1; its number."""
    boot([machines["n2"]])
    cluster.note_state("n2")
    job = cluster.run_job("-w n1 -n1 --mem=100 --output=/dev/null --wrap 'sleep 3000'")
    cluster.have("n1", "n2")
    cluster.up_ok()
    return job


def test_a_node_that_is_added_leaves_the_others_and_their_jobs_alone(cluster: MachineCluster, joined: str) -> None:
    touched = cluster.touched()
    assert {"n2-prepare", "n2-register", "n2-node"} <= touched
    assert not {name for name in touched if name.startswith(("n1-", "head-"))}
    assert cluster.job_state(joined) == "RUNNING"
    cluster.run("head", f"scancel {joined}")
    assert sorted(cluster.run_as("ada", "head", f"{PAIR} hostname", 120).split()) == ["n1", "n2"]


def test_rdma_devices_are_found_and_proven(cluster: MachineCluster) -> None:
    lines = cluster.run("head", "grep '^# fabric' /etc/slurm/topology.conf").splitlines()
    assert sorted(line.split()[2] for line in lines if line.endswith(" rxe0:1")) == ["n1", "n2"]


def test_a_job_of_both_nodes_receives_its_rdma_devices(cluster: MachineCluster) -> None:
    told = cluster.run_as("ada", "head", f"{PAIR} bash -c 'echo $NCCL_IB_HCA $TAILRACK_INTERFACE'", 120)
    assert told.splitlines() == ["=rxe0:1 eth0"] * 2


def test_a_user_can_use_them(cluster: MachineCluster) -> None:
    pingpong = f"ibv_rc_pingpong -d rxe0 -g {cluster.gid_index('n1')} -n 8 -s 65536"
    waiting = cluster.run_job(f"-w n1 -n1 --mem=100 --output=waited --wrap '{pingpong}'")
    calling = as_user("ada", f"srun -w n2 -n1 --mem=100 {pingpong} n1")
    cluster.eventually(lambda: cluster.attempt("head", calling).returncode == 0, 60, "n2 has reached n1 by RDMA")
    cluster.eventually(lambda: cluster.job_state(waiting) == "COMPLETED", 60, "the one that waited has ended")
    # Both ways, eight times 64 KiB each.
    assert f"{2 * 8 * 65536} bytes in" in cluster.run_as("ada", "head", "cat waited")


def test_they_are_reported(cluster: MachineCluster) -> None:
    outputs = cluster.deployment().outputs()
    assert outputs["cluster"]["fabric"]["rack"]["interfaces"] == {"n1": ["eth0"], "n2": ["eth0"]}
    assert outputs["cluster"]["fabric"]["rack"]["notes"] == []
