"""Pods that are killed, lose their tailnet for a moment, or have a full volume: jobs run on, or again."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually, own_machine, start_pod, stop_pod

pytestmark = pytest.mark.proof

# A batch script with a step: both end when its file is there.
WAITS = "srun sh -c 'until [ -e /tmp/go-$SLURM_JOB_ID ]; do sleep 0.2; done; echo from the step'; echo from the script"
VOLUME = "/workspace/.tailrack/tailscale"


@pytest.fixture(scope="module")
def cluster(make_cluster: Callable[[str], ClusterUnderTest]) -> ClusterUnderTest:
    """A head node and a pod."""
    made = make_cluster("podsagain")
    head, pod = own_machine(made.lab, "head"), own_machine(made.lab, "p1", like="pod", site="pods")
    made.config["tailrack:head"] = {"name": "head", "site": "rack", "compute": True, "accept_root_risk": True}
    made.config["tailrack:sites"] = [
        {"name": "rack", "kind": "hosts", "hosts": [head], "fabric": "tailnet"},
        {"name": "pods", "kind": "hosts", "hosts": [pod], "pods": True, "accept_pod_risk": True},
    ]
    made.config["tailrack:tailnet"]["control_url"] = "http://control.lab:8080"
    made.config["tailrack:validation"]["floors_gb_per_s"] = {}
    made.up_ok()
    return made


def wait_until_idle(cluster: ClusterUnderTest) -> None:
    def is_idle() -> bool:
        return cluster.run("head", "sinfo -h -N -p pods -o %T").strip() == "idle"

    eventually(is_idle, 90, "the pod is idle")


def wait_for_tailscaled(cluster: ClusterUnderTest) -> None:
    connected = "tailscale wait --timeout 1s"
    eventually(lambda: cluster.attempt("p1", connected).returncode == 0, 30, "tailscaled is back")


def submit(cluster: ClusterUnderTest) -> str:
    """Submit a job that waits, and return its number when it runs."""
    cluster.run("head", f"cat >/tmp/waits <<'END'\n#!/bin/sh\n{WAITS}\nEND")
    job = cluster.run_as("ada", "head", "sbatch --parsable -p pods -D /tmp -o /tmp/out-%j /tmp/waits").strip()
    eventually(lambda: runs(cluster, job), 30, "the job's step runs")
    return job


def shown(cluster: ClusterUnderTest, job: str) -> tuple[str, int]:
    """Return a job's state, and how often it was started again."""
    row = cluster.run("head", f"scontrol show job -o {job}")
    found = re.search(r"JobState=(\S+).*Restarts=(\d+)|Restarts=(\d+).*JobState=(\S+)", row)
    assert found, row
    return (found[1], int(found[2])) if found[1] else (found[4], int(found[3]))


def runs(cluster: ClusterUnderTest, job: str, restarts: int = 0) -> bool:
    steps = cluster.attempt("head", f"squeue -h -s -j {job} -o %i").stdout
    return shown(cluster, job) == ("RUNNING", restarts) and f"{job}.0" in steps


def let_end(cluster: ClusterUnderTest, job: str) -> str:
    """Let a job end, wait for it, and return its output."""
    cluster.run("p1", f"touch /tmp/go-{job}")
    eventually(lambda: shown(cluster, job)[0] == "COMPLETED", 60, "the job has ended")
    return cluster.run("p1", f"cat /tmp/out-{job}")


def test_a_pod_that_was_killed_and_started_is_back_and_its_job_runs_again(cluster: ClusterUnderTest) -> None:
    job = submit(cluster)
    stop_pod(cluster.lab, "p1", "pods")
    start_pod(cluster.lab, "p1", "pods")
    eventually(lambda: runs(cluster, job, restarts=1), 150, "the job runs again")
    assert let_end(cluster, job).splitlines()[-2:] == ["from the step", "from the script"]
    wait_until_idle(cluster)


def test_a_batch_job_and_its_steps_survive_a_restart_of_tailscaled(cluster: ClusterUnderTest) -> None:
    job = submit(cluster)
    before = cluster.run("p1", "pgrep -x tailscaled").strip()
    cluster.run("p1", "pkill -9 -x tailscaled")
    wait_for_tailscaled(cluster)
    assert cluster.run("p1", "pgrep -x tailscaled").strip() != before
    # An srun elsewhere would be ended now (test_pod_jobs.py).
    cluster.run_as("ada", "head", "srun -p pods -D /tmp --overlap --jobid=$(squeue -h -o %A) true")
    assert let_end(cluster, job) == "from the step\nfrom the script\n"
    assert shown(cluster, job) == ("COMPLETED", 0)
    wait_until_idle(cluster)


def test_a_pod_with_a_full_volume_runs_jobs_and_survives_a_restart_of_tailscaled(cluster: ClusterUnderTest) -> None:
    # /dev/shm is a file system of 64 MB, and a pod cannot mount another one.
    fill = (
        f"cp -a {VOLUME} {VOLUME}.saved && mv {VOLUME} /dev/shm/full && ln -s /dev/shm/full {VOLUME} && "
        "! dd if=/dev/zero of=/dev/shm/full/rest status=none && pkill -9 -x tailscaled"
    )
    cluster.run("p1", fill)
    try:
        wait_for_tailscaled(cluster)
        assert cluster.run_as("ada", "head", "srun -p pods -D /tmp echo works") == "works\n"
    finally:
        cluster.run("p1", f"rm -r {VOLUME} /dev/shm/full && mv {VOLUME}.saved {VOLUME}; pkill -9 -x tailscaled")
    wait_for_tailscaled(cluster)
    wait_until_idle(cluster)
