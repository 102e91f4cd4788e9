"""Jobs over several pods that share a network of their provider: MPI, files, a lost pod, and a pod outside of it.

The tests share two pods and run in the order of this file. The tailnet's policy is that of such pods.
"""

import pytest

from components.roles.network.tailnet.policy import Pods
from tests.faults.test_pod_jobs import HOME, ada, reaches, write_policy
from tests.lab.cluster import ClusterUnderTest, MakeCluster, as_user, eventually, own_machine, start_pod, stop_pod

SUM = (
    "from mpi4py import MPI; c = MPI.COMM_WORLD; print(c.size, c.allreduce(c.rank + 1), len(c.allreduce([0] * 10**6)))"
)
MPI = f"srun --mpi=pmix python3 -c '{SUM}'"
ON_BOTH = f"cd /tmp && {MPI.replace('srun', 'srun -p pods -N2')}"


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> ClusterUnderTest:
    """A head node that runs jobs, and a site of two pods with a network."""
    made = make_cluster("podfabric")
    made.use_machines(
        {"name": "rack", "hosts": [own_machine(made.lab, "head")], "fabric": "tailnet"},
        made.pods("p1", "p2", fabric="eth0"),
        computes=True,
    )
    made.config.setdefault("tailrack:slurm", {}).setdefault("settings", {})["SlurmdTimeout"] = 30
    made.up_ok()
    write_policy(made, Pods.TOGETHER, tmp_path_factory.mktemp("policy"))
    return made


def idle(cluster: ClusterUnderTest) -> bool:
    return cluster.run("head", "sinfo -h -N -p pods -o '%T'").split() == ["idle", "idle"]


def test_the_policy_closes_the_head_node_to_pods(cluster: ClusterUnderTest) -> None:
    address = cluster.run("head", "cat /var/lib/tailrack/members/head/address").strip()
    eventually(lambda: not reaches(cluster, address, 22), 40, "the policy is in force")
    assert "MaxNodes=UNLIMITED" in cluster.run("head", "scontrol show partition pods")


def test_mpi_adds_over_two_pods(cluster: ClusterUnderTest) -> None:
    assert ada(cluster, ON_BOTH, 120).splitlines() == ["2 3 2000000"] * 2


def test_each_task_has_the_network_of_the_pods_and_a_job_on_one_pod_has_none(cluster: ClusterUnderTest) -> None:
    names = "echo $TAILRACK_INTERFACE $NCCL_SOCKET_IFNAME $GLOO_SOCKET_IFNAME $OMPI_MCA_btl_tcp_if_include"
    assert ada(cluster, f"srun -p pods -N2 -D /tmp sh -c '{names}'").splitlines() == ["eth0 =eth0 eth0 eth0"] * 2
    assert ada(cluster, f"srun -p pods -N1 -D /tmp sh -c '{names}'").strip() == ""


def test_a_batch_job_runs_steps_on_both_pods_and_brings_its_files_to_each(cluster: ClusterUnderTest) -> None:
    folder = f"{HOME}/both"
    ada(cluster, f"mkdir -p {folder} && echo 41 >{folder}/in && cp {folder}/in {folder}/kept")
    step = "srun sh -c 'cat in >of-$SLURMD_NODENAME; sleep $SLURM_PROCID.1; echo $SLURMD_NODENAME >shared'"
    script = f"#!/bin/sh\n{step}\n{MPI} >sum\n"
    ada(cluster, f"cat >{folder}/job.sh <<'END'\n{script}END")
    job = ada(cluster, f"cd {folder} && sbatch --parsable -p pods -N2 --comment=stage -o out job.sh").strip()
    assert cluster.end_of(job, 120) == "COMPLETED", cluster.attempt("head", f"cat {folder}/out").stdout
    assert ada(cluster, f"cd {folder} && cat of-p1 of-p2 kept").split() == ["41"] * 3
    assert ada(cluster, f"cat {folder}/sum").splitlines() == ["2 3 2000000"] * 2
    assert ada(cluster, f"cat {folder}/shared").strip() == "p2", "the newest file of both is the one that stays"


def test_an_array_of_jobs_over_both_pods_ends(cluster: ClusterUnderTest) -> None:
    submit = "sbatch --parsable -p pods -N2 -D /tmp -o /tmp/a-%a --mem=100 --array=1-2 --wrap 'srun hostname'"
    job = ada(cluster, submit).strip()
    states = f"sacct -n -X -j {job} -o State"
    eventually(lambda: cluster.run("head", states).split() == ["COMPLETED"] * 2, 60, "both tasks end")


def test_results_that_one_pod_could_not_send_stay_there_by_name(cluster: ClusterUnderTest) -> None:
    folder = f"{HOME}/half"
    ada(cluster, f"mkdir -p {folder}")
    step = 'srun sh -c "echo 1 >of-\\$SLURMD_NODENAME; sleep 6"'
    submit = f"cd {folder} && sbatch --parsable -p pods -N2 --comment=stage -o /dev/null --wrap '{step}'"
    job = ada(cluster, submit).strip()
    eventually(lambda: cluster.job(job)["JobState"] == "RUNNING", 60, "the job runs")
    cluster.run("head", "mv /var/lib/tailrack/members/p2/address /root/address")
    try:
        assert cluster.end_of(job) == "COMPLETED"
        answer = ada(cluster, f"tailrack why {job}")
    finally:
        cluster.run("head", "mv /root/address /var/lib/tailrack/members/p2/address")
    assert f"Its results are still in {folder} on p2: " in answer
    assert ada(cluster, f"ls {folder}").split() == ["of-p1"]
    ada(cluster, answer.split("next: ")[1].strip())
    eventually(lambda: ada(cluster, f"ls {folder}").split() == ["of-p1", "of-p2"], 20, "the rest is back")


def test_a_job_never_spans_pods_and_other_nodes(cluster: ClusterUnderTest) -> None:
    for words in ("srun -p pods,rack -N3 true", "srun -p pods -N1 : -p rack -N1 hostname", "srun -p pods -N3 true"):
        done = cluster.attempt("head", as_user("ada", f"cd /tmp && {words}"), 20)
        assert done.returncode not in (0, 124), f"{words}: {done.stdout}{done.stderr}"


def test_a_job_on_a_lost_pod_fails(cluster: ClusterUnderTest) -> None:
    command = "srun -p pods -N2 -D /tmp --mpi=pmix sleep 600 >~/lost.out 2>&1; echo $? >~/lost.status"
    cluster.run("head", f"rm -f {HOME}/lost.*; setsid {as_user('ada', command)} >/dev/null 2>&1 &")
    eventually(lambda: "R" in cluster.run("head", "squeue -h -p pods -o %t"), 30, "the job runs")
    stop_pod(cluster.lab, "p2", "pods")
    try:
        eventually(lambda: cluster.attempt("head", f"cat {HOME}/lost.status").stdout != "", 180, "srun has ended")
        assert cluster.run("head", f"cat {HOME}/lost.status").strip() != "0"
        assert not cluster.run("head", "squeue -h -p pods -t R")
    finally:
        start_pod(cluster.lab, "p2", "pods")
    eventually(lambda: idle(cluster), 60, "both pods are back")
    assert ada(cluster, ON_BOTH, 120).startswith("2 3")


def test_a_pod_outside_of_the_network_is_named_and_gets_no_jobs(cluster: ClusterUnderTest) -> None:
    site = cluster.config["tailrack:sites"][1]
    site["hosts"].append(own_machine(cluster.lab, "p3", like="pod", site="elsewhere"))
    summary = cluster.up()
    message = "\n".join(failure.message for failure in summary.failures)
    assert "p3 does not reach p1 at " in message or "p3 does not reach p2 at " in message, message
    assert cluster.run("head", "sinfo -h -N -n p3 -o %n").strip() == ""
