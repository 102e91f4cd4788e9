"""Changes that take a node from its jobs. Each test leaves the cluster usable for the next."""

import json
import re
import subprocess

import pytest

from tests.lab.cluster import JOB_LIMIT_SECONDS, as_user, eventually
from tests.lab.cluster import ClusterUnderTest as Cluster
from tests.lab.test_slurm import node, submit, usable
from tests.unit.fake_nvidia_smi import gpu, xml


@pytest.fixture(scope="module")
def cluster(full: Cluster) -> Cluster:
    """Three nodes at two sites."""
    full.up_ok()
    return full


def interactive(cluster: Cluster, words: str) -> subprocess.Popen[str]:
    """Start an srun as the user at the head node's terminal, so to speak."""
    command = ["docker", "exec", cluster.container("head"), "bash", "-c", as_user("ada", f"srun {words}")]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def set_features(cluster: Cluster, *features: str) -> None:
    cluster.config["tailrack:sites"][1]["pools"][0]["features"] = list(features)


def rerun_node_steps(cluster: Cluster, user: str) -> None:
    """Change something that every node's step sees: another user."""
    cluster.config["tailrack:users"].append({"name": user, "uid": 6100 + len(cluster.config["tailrack:users"])})


@pytest.mark.usefixtures("no_jobs")
def test_another_line_in_slurmds_unit_costs_no_job(cluster: Cluster) -> None:
    unit = "/etc/systemd/system/slurmd.service.d/tailrack.conf"
    running = submit(cluster, "-w b1 --wrap 'sleep 900'")
    before = cluster.job(running)
    cluster.run("b1", f"sed -i 's/^RestartSec=.*/RestartSec=77/; s/^# Slurm.*/# Another comment/' {unit}")
    rerun_node_steps(cluster, "dora")
    cluster.up_ok()
    assert "b1-node" in cluster.touched()
    assert cluster.attempt("b1", f"grep -E 'RestartSec=77|Another' {unit}").returncode == 1
    after = cluster.job(running)
    assert all(after[key] == before[key] for key in ("JobState", "StartTime", "Restarts", "NodeList"))
    assert usable(cluster, "b1")


@pytest.mark.proof
def test_a_node_with_only_the_second_gpu_device_registers_it_for_jobs(cluster: Cluster) -> None:
    links = "GPU 0: NVIDIA H200 (UUID: GPU-fake)"
    fake = f"#!/bin/bash\n# A fake.\ncase $1 in -q) cat /usr/local/share/fake.xml ;; *) echo '{links}' ;; esac\n"
    cluster.give_gpus("b1", (1,), fake, xml([gpu(0), gpu(1)]))
    known = node(cluster, "b1")
    assert known["gres"].startswith("gpu:h200:1")
    assert {"gpu-found", "gpu-h200"} <= set(known["features"])
    assert "File=/dev/nvidia1\n" in cluster.run("b1", "cat /etc/tailrack/gres.conf")
    asked = cluster.run_as(
        "ada", "head", "srun -p gpu --gpus=h200:1 bash -c 'echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES'"
    )
    assert asked.split() == ["b1", "0"]
    # A job that asks for the GPU alone gets its share of the node: all CPUs, and their memory.
    cpus = int(cluster.run("b1", "nproc"))
    share = cpus - cpus % 2 if cpus > 1 else cpus
    assert f"JobDefaults=DefCpuPerGPU={share}" in cluster.run("head", "scontrol show partition gpu")
    shows = "bash -c 'echo $SLURM_CPUS_ON_NODE $(nproc)'"
    assert cluster.run_as("ada", "head", f"srun -p gpu --gpus=1 {shows}").split() == [str(share), str(cpus)]
    (per_cpu,) = re.findall(r"DefMemPerCPU=(\d+)", cluster.run("head", "scontrol show partition gpu"))
    memory = cluster.run_as("ada", "head", "srun -p gpu --gpus=1 bash -c 'scontrol show job $SLURM_JOB_ID'")
    assert f"cpu={share},mem={int(per_cpu) * share}M" in memory
    for asks, number in (("-c 1", 1), ("--cpus-per-gpu=1", 1)):
        assert cluster.run_as("ada", "head", f"srun -p gpu --gpus=1 {asks} {shows}").split()[0] == str(number)
    health = json.loads(cluster.run("b1", "cat /run/tailrack/health.json"))
    assert health["looks"]["nvidia-smi"]["status"] == 0
    # It is taken out again, and nobody has to say so but for the look.
    cluster.run("b1", "rm /usr/local/bin/nvidia-smi /dev/nvidia1 /dev/nvidiactl")
    cluster.config["tailrack:cluster"]["repair"] = {"b1": "it has none"}
    cluster.up_ok()
    assert node(cluster, "b1")["gres"] == ""
    assert cluster.attempt("b1", "test -e /etc/systemd/system/tailrack-gpu.service").returncode != 0


@pytest.mark.usefixtures("no_jobs")
def test_a_node_with_another_feature_sees_every_kind_of_job_off_and_comes_back_with_it(cluster: Cluster) -> None:
    stays = submit(cluster, "-w b1 -n1 --mem=100M --no-requeue --wrap 'sleep 900'")
    terminal = interactive(cluster, "-w b1 -n1 --mem=100M sleep 900")
    eventually(lambda: cluster.run("head", "squeue -h -w b1 -o %A").count("\n") == 2, 60, "both jobs run on b1")
    set_features(cluster, "fast")
    summary = cluster.up_ok()
    assert summary.seconds > JOB_LIMIT_SECONDS
    assert "b1-node" in cluster.touched()
    assert sorted(node(cluster, "b1")["features"]) == ["fast", "site-cloud-b"]
    assert usable(cluster, "b1")
    assert cluster.job(stays)["JobState"] == "CANCELLED"
    assert terminal.wait(30) != 0
    assert terminal.stdout is not None
    assert "is cancelled: node b1 had to be free, and the job cannot be requeued" in terminal.stdout.read()
    log = cluster.run("b1", "cat /var/log/tailrack/b1-node.log")
    assert f"cancelling job {stays} of ada, which cannot be requeued" in log
    assert cluster.run_as("ada", "head", "srun -C fast hostname") == "b1\n"


@pytest.mark.usefixtures("no_jobs")
def test_a_job_that_may_be_requeued_runs_again_on_the_node_that_came_back(cluster: Cluster) -> None:
    moves = submit(cluster, "-w b1 --wrap 'sleep 900'")
    set_features(cluster, "faster")
    cluster.up_ok()
    assert sorted(node(cluster, "b1")["features"]) == ["faster", "site-cloud-b"]
    assert cluster.job(moves)["Restarts"] == "1"


def test_a_change_that_was_cut_off_after_slurmd_stopped_is_finished_by_the_next_up(cluster: Cluster) -> None:
    cluster.run("head", "scontrol update nodename=b1 state=drain reason='tailrack: registers anew'")
    cluster.run("b1", "systemctl stop slurmd; [ ! -e /run/slurm ]")
    set_features(cluster, "fastest")
    cluster.up_ok()
    assert sorted(node(cluster, "b1")["features"]) == ["fastest", "site-cloud-b"]
    assert usable(cluster, "b1")


def test_a_node_that_we_drained_and_left_so_is_given_work_again(cluster: Cluster) -> None:
    cluster.run("head", "scontrol update nodename=b1 state=drain reason='tailrack: leaves the cluster'")
    rerun_node_steps(cluster, "edda")
    cluster.up_ok()
    assert usable(cluster, "b1")


def test_a_persons_drain_outlives_another_feature(cluster: Cluster) -> None:
    cluster.run("head", "scontrol update nodename=b1 state=drain reason='the disk clicks'")
    set_features(cluster, "slow")
    cluster.up_ok()
    known = node(cluster, "b1")
    assert sorted(known["features"]) == ["site-cloud-b", "slow"]
    assert "DRAIN" in known["state"]
    assert known["reason"] == "the disk clicks"
    cluster.run("head", "scontrol update nodename=b1 state=resume")


@pytest.mark.proof
def test_a_drain_of_slurms_own_is_no_usable_node_and_is_named(cluster: Cluster) -> None:
    # As slurmctld does it: as the user it runs as.
    cluster.run("head", "runuser -u slurm -- scontrol update nodename=b1 state=drain reason='Kill task failed'")
    rerun_node_steps(cluster, "fritz")
    failures = cluster.up().failures
    (failure,) = [one for one in failures if one.urn.endswith("::b1-node")]
    assert "does not see this node as usable (DRAIN+DYNAMIC_NORM+IDLE" in failure.message
    assert "Kill task failed" in failure.message
    cluster.run("head", "scontrol update nodename=b1 state=resume")
    cluster.up_ok()


@pytest.mark.proof
def test_a_node_leaves_although_its_job_cannot_be_requeued(cluster: Cluster) -> None:
    cluster.config["tailrack:cluster"].pop("repair", None)  # of the node that goes
    stays = submit(cluster, "-w b1 --no-requeue --wrap 'sleep 900'")
    del cluster.config["tailrack:sites"][1]
    cluster.config["tailrack:validation"]["floors_gb_per_s"] = {}
    cluster.up_ok()
    assert cluster.attempt("head", "scontrol show node b1").returncode != 0
    assert cluster.job(stays)["JobState"] == "CANCELLED"
    log = cluster.run("head", "cat /var/log/tailrack/b1-register.log")
    assert f"cancelling job {stays} of ada, which cannot be requeued" in log
