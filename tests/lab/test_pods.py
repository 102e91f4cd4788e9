"""A pod as a compute node: a container without systemd, a TUN device and mounts, beside a head node and a machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually, own_machine

DAEMONS = ("munged", "tailscaled", "slurmd", "sshd")
# The root of a process tree that runit keeps.
SSHD = "pgrep -f -o 'sshd.*tailrack_sshd_config'"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str], ClusterUnderTest]) -> ClusterUnderTest:
    """A head node and a machine in one site, and a pod in another one."""
    made = make_cluster("pods")
    rack = [own_machine(made.lab, "head"), own_machine(made.lab, "n1")]
    pods = [own_machine(made.lab, "p1", like="pod", site="pods")]
    made.config["tailrack:head"] = {"name": "head", "site": "rack", "compute": True, "accept_root_risk": True}
    made.config["tailrack:sites"] = [
        {"name": "rack", "kind": "hosts", "hosts": rack, "fabric": "tailnet"},
        {"name": "pods", "kind": "hosts", "hosts": pods, "pods": True, "accept_pod_risk": True},
    ]
    made.config["tailrack:tailnet"]["control_url"] = "http://control.lab:8080"
    made.config["tailrack:validation"]["floors_gb_per_s"] = {}
    made.up_ok()
    return made


def node_state(cluster: ClusterUnderTest) -> str:
    return cluster.run("head", "sinfo -h -N -p pods -o '%T'").strip()


def test_a_job_runs_on_the_head_node_on_a_machine_and_on_a_pod(cluster: ClusterUnderTest) -> None:
    assert cluster.run_as("ada", "head", "srun -p rack -N2 hostname").split() == ["head", "n1"]
    assert cluster.run_as("ada", "head", "srun -p pods -D /tmp sh -c 'echo $SLURMD_NODENAME'").strip() == "p1"
