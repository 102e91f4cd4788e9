"""Who uses the GPUs: a job that keeps its GPU busy and one that holds an idle GPU differ for everybody who looks.

The GPUs are device files and a fake nvidia-smi, which shows the first GPU busy. Slurm gives them to jobs.
"""

import json
import re

import pytest

from components.roles.monitoring.usage.samples import Summary, read_summary
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually
from tests.unit.fake_nvidia_smi import gpu, xml

Cluster = ClusterUnderTest
FAKE = """#!/bin/bash
# A fake.
case "$*" in
    '-q -x') cat /usr/local/share/fake.xml ;;
    --query-gpu=index,pci.bus_id,utilization.gpu,memory.used\\ *) cat /usr/local/share/fake-use ;;
esac
"""
USE = "0, 00000000:10:00.0, 90, 40960\n1, 00000000:11:00.0, 0, 4\n"
# Of a node with two GPUs: a job with one of them pays a dollar in ten seconds.
PRICE = 720
SAMPLES = 12
# With --now it also updates running jobs, as the timer does every five minutes.
RECORD = "/usr/local/lib/tailrack/job-gpu-use --now"


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """The head node and a1, which has two GPUs."""
    made = make_cluster("usage", one_site=True)
    made.config["tailrack:sites"][0]["pools"][0]["price_per_hour"] = PRICE
    made.config["tailrack:users"].append({"name": "bob", "uid": 6002})
    made.config["tailrack:accounting"] = {"unused_gpus": {"tell_minutes": 10, "end_minutes": 20}}
    made.up_ok()
    made.write("a1", "/usr/local/share/fake-use", USE)
    made.give_gpus("a1", (0, 1), FAKE, xml([gpu(0), gpu(1)]))
    return made


def submit(cluster: Cluster, user: str) -> str:
    """Submit a job with a GPU as a user, wait until it runs, and return its number."""
    line = "cd; sbatch --parsable --output=job.out -n1 -c1 --gpus=1 --wrap 'sleep 900'"
    number = cluster.run_as(user, "head", line).strip()
    eventually(lambda: cluster.job(number)["JobState"] == "RUNNING", 60, "the job runs")
    return number


def sample(cluster: Cluster, times: int) -> None:
    """Let minutes pass for the samples of GPUs."""
    cluster.run("a1", f"for n in {{1..{times}}}; do /usr/local/lib/tailrack/gpu-use; done")


def output(cluster: Cluster, user: str) -> str:
    return cluster.run_as(user, "head", "cd; cat job.out")


def why(cluster: Cluster, user: str, job: str) -> str:
    return " ".join(cluster.run_as(user, "head", f"tailrack why {job}").split())


def comment(cluster: Cluster, user: str, job: str) -> Summary:
    """The figures in a job's AdminComment, as its user has it from the accounting."""
    text = cluster.run_as(user, "head", f"sacct -n -P -X -j {job} -o AdminComment").strip()
    return read_summary(text) or Summary(True, 0, 0)


def test_a_busy_gpu_and_an_idle_one_differ_while_the_jobs_run_and_in_the_accounting(cluster: Cluster) -> None:
    for node in ("head", "a1"):
        assert cluster.run(node, "systemctl is-active tailrack-minute.timer").strip() == "active"
    busy, idle = submit(cluster, "ada"), submit(cluster, "bob")
    cluster.run("a1", "tailrack-minute gpu-use")
    sample(cluster, SAMPLES - 1)
    cluster.run("head", f"tailrack-minute job-gpu-use; {RECORD}")
    said = why(cluster, "bob", idle)
    assert re.search(r"Its GPU has been idle for \d+ min\. Cancel the job", said), said
    assert "It has had 1 GPU:" in why(cluster, "ada", busy)
    assert "90 % mean utilization, idle 0 %, 40.0 GiB peak memory, " in why(cluster, "ada", busy)
    view = cluster.run("head", "sll --once")
    assert re.search(r"GPUS +GPU USE +IDLE +GPU MEM +GPU HOURS +COST +ELAPSED", view), view
    assert re.search(rf"^{busy} +ada .* 90 % +0 % +40\.0 GiB +0\.\d\d +\d+\.\d\d USD ", view, re.MULTILINE), view
    assert re.search(rf"^{busy} +ada .* 90 % ", view, re.MULTILINE), view
    assert re.search(rf"^{idle} +bob .* 0 %, 1 idle ", view, re.MULTILINE), view
    # While they run, `tailrack usage` has their figures from slurmctld.
    running = {row["user"]: row for row in json.loads(cluster.run("head", "tailrack usage --json"))["usage"]}
    assert running["ada"]["idle"] == 0
    assert running["bob"]["hours"] > 0
    assert running["bob"]["idle"] == pytest.approx(running["bob"]["hours"])
    refused = cluster.attempt("head", f"runuser -u bob -- scontrol update jobid={idle} admincomment=busy")
    assert refused.returncode != 0, "a user sets the text that root reads"

    def long_enough() -> bool:
        return float(cluster.run("head", "date +%s")) - started >= 40

    started = float(cluster.run("head", f'date +%s -d "$(squeue -h -j {idle} -o %S)"'))
    eventually(long_enough, 60, "the jobs have run for long enough to cost something")
    told = "tailrack: Its GPU has been idle for"
    eventually(lambda: told in output(cluster, "bob"), 30, "the idle job is told so in its output")
    assert "ends this job" not in output(cluster, "bob")
    sample(cluster, 10)
    cluster.run("head", RECORD)
    eventually(lambda: "CANCELLED" in cluster.job(idle)["JobState"], 60, "the idle job ends at the limit")
    assert "tailrack ends this job" in output(cluster, "bob")
    assert cluster.job(busy)["JobState"] == "RUNNING"
    assert "tailrack:" not in output(cluster, "ada")
    cluster.run("head", f"scancel {busy}")

    def recorded() -> bool:
        cluster.attempt("head", RECORD)
        return all(not comment(cluster, *job).running for job in (("ada", busy), ("bob", idle)))

    eventually(recorded, 120, "the jobs' use is in the accounting")
    for one, figures in ((("ada", busy), (1, 90, 0, 40.0)), (("bob", idle), (1, 0, 100, 0.0))):
        final = comment(cluster, *one)
        assert (final.gpus, final.percent, final.idle, final.memory) == figures, final
        assert 0 < final.hours < 0.1, final
        assert final.costs["USD"] > 0, final
    assert "It had 1 GPU: 0.0" in why(cluster, "bob", idle)


def test_root_sees_the_usage_of_all_users_and_each_user_their_own(cluster: Cluster) -> None:
    table = cluster.run("head", "tailrack usage")
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()[1:3]}
    assert rows.keys() == {"ada", "bob"}, table
    assert (rows["ada"][2], rows["bob"][2]) == ("0%", "100%"), table
    assert float(rows["bob"][3]) >= 3, table
    assert rows["bob"][4] == "USD", table
    own = cluster.run_as("bob", "head", "tailrack usage")
    assert "bob" in own, own
    assert "ada" not in own, own
    assert "ada" in cluster.run("head", "tailrack usage --user ada")
    assert "no record" not in cluster.run("head", "tailrack usage --month 2020-01")


def test_without_a_job_no_gpu_is_sampled_and_an_unchanged_up_changes_nothing(cluster: Cluster) -> None:
    assert cluster.run("a1", "ls /run/tailrack-private/gpu-jobs").split() == []
    count = "journalctl -u tailrack-gpu-use --no-pager | wc -l"
    before = cluster.run("a1", count)
    cluster.run("a1", "tailrack-minute gpu-use")
    assert cluster.run("a1", count) == before
    cluster.up_ok()
    assert cluster.touched() == set()
