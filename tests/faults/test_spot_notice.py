"""A provider takes a machine back, and a machine shuts down: jobs save at SIGTERM and go on elsewhere.

The metadata service is a fake on a1's loopback. The tests run in the order of this file.
"""

import base64
import json
import re
import subprocess
from pathlib import Path

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually

Cluster = ClusterUnderTest
UNIT = "tailrack-spot-notice.service"
NOTICE = "/run/fake-notice"
AWS_NOTICE = {"action": "terminate", "time": "2026-11-26T14:02:00Z"}
# Seconds that a job takes to save; without save_seconds a shutdown leaves it five.
SAVING = 8
# work CHECKPOINT SECONDS: once with a checkpoint, it ends. At SIGTERM it takes so long to save.
WORK = """#!/bin/bash
[ ! -e "$1" ] || { echo "goes on from $(cat "$1") on $SLURMD_NODENAME"; exit; }
save() { sleep "$2"; echo "step 7" >"$1"; exit; }
trap 'save "$@"' TERM
while :; do sleep 0.2; done
"""
# As docs/using.md has it.
LIMITED = """#!/bin/bash
trap 'scontrol requeue "$SLURM_JOB_ID"' TERM
srun ./work limited 1 &
wait
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """The head node, which runs jobs, and a1, which AWS may take back."""
    made = make_cluster("spot", one_site=True)
    made.config["tailrack:sites"][0]["pools"][0]["spot"] = "aws"
    made.config["tailrack:slurm"]["save_seconds"] = 20
    made.up_ok()
    made.run_as("ada", "head", f"base64 -d >work <<<{encoded(WORK)}; chmod +x work")
    return made


@pytest.fixture(scope="module")
def limited(cluster: Cluster) -> str:
    """A job on the head node that is told of its time limit after 20 seconds."""
    options = "--parsable --output=limited.out -w head -c1 -t 2 --signal=B:TERM@100"
    return cluster.run_as("ada", "head", f"base64 -d <<<{encoded(LIMITED)} | sbatch {options}").strip()


@pytest.fixture
def metadata(cluster: Cluster) -> Cluster:
    """Let a1 have a metadata service, which has no notice yet."""
    text = encoded(Path(__file__).with_name("metadata_server.py").read_text(encoding="utf-8"))
    cluster.run("a1", f"rm -f {NOTICE}; base64 -d >/srv/metadata_server.py <<<{text}")
    if cluster.attempt("a1", "systemctl is-active fake-metadata").returncode:
        serve = "systemd-run -q --unit=fake-metadata python3 /srv/metadata_server.py"
        cluster.run("a1", f"ip addr replace 169.254.169.254/32 dev lo; {serve} {NOTICE}")
    return cluster


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def submit(cluster: Cluster, options: str, checkpoint: str, start: str = "srun", saving: int = 1) -> str:
    """Submit a job that runs on a1 now, and may run on the head node later; its number."""
    cluster.run("head", "scontrol update nodename=head state=drain reason=later")
    words = f"--parsable --output={checkpoint}.out --open-mode=append -c1 {options}"
    job = cluster.run_as("ada", "head", f"sbatch {words} --wrap '{start} ./work {checkpoint} {saving}'").strip()
    eventually(lambda: cluster.job(job)["JobState"] == "RUNNING", 60, "the job runs on a1")
    eventually(lambda: bool(cluster.run("a1", f"pgrep -f 'work {checkpoint}' || :")), 30, "its program runs")
    cluster.run("head", "scontrol update nodename=head state=resume")
    return job


def why(cluster: Cluster, job: str) -> str:
    return " ".join(cluster.run_as("ada", "head", f"tailrack why {job}").split())


def node(cluster: Cluster) -> str:
    """The state and the reason of a1."""
    return cluster.run("head", "scontrol show node a1 | grep -oP '(State|Reason)=.*'")


def file(cluster: Cluster, name: str) -> str:
    return cluster.attempt("head", f"cat /shared/home/ada/{name}").stdout


def give_notice(cluster: Cluster, text: str) -> None:
    cluster.run("a1", f"base64 -d >{NOTICE}.new <<<{encoded(text)}; mv {NOTICE}.new {NOTICE}")


@pytest.mark.usefixtures("limited")
def test_at_a_notice_of_aws_jobs_save_and_go_on_elsewhere_and_others_have_the_cause(metadata: Cluster) -> None:
    cluster = metadata
    # The service may have started before the fake; it tries again.
    eventually(lambda: "answers again" in cluster.run("a1", f"journalctl -u {UNIT} -o cat"), 30, "it reads notices")
    moving, ending = submit(cluster, "", "moving"), submit(cluster, "--no-requeue", "ending", "exec")
    give_notice(cluster, json.dumps(AWS_NOTICE))
    eventually(lambda: "Reason=AWS takes this machine back at 14:02:00Z" in node(cluster), 30, "a1 has the reason")
    assert "DRAIN" in node(cluster)
    shown = cluster.run("head", "tailrack nodes a1")
    assert re.search(r"provider, since .*: AWS takes this machine back at 14:02:00Z", shown), shown
    for checkpoint in ("moving", "ending"):
        eventually(lambda name=checkpoint: file(cluster, name) == "step 7\n", 60, "it saves")  # type: ignore[misc]
    # At once: Slurm alone would wait for two minutes.
    eventually(lambda: cluster.job(moving)["JobState"] == "COMPLETED", 60, "the job goes on on another node")
    assert "goes on from step 7 on head" in file(cluster, "moving.out")
    said = why(cluster, moving)
    assert "It was requeued because AWS took node a1 back at 14:02:00Z." in said, said
    said = why(cluster, ending)
    assert "It was ended because AWS took node a1 back at 14:02:00Z, and it cannot be requeued." in said, said
    assert "without --no-requeue" in said
    # A machine that AWS has only stopped comes back without a notice.
    cluster.run("a1", f"rm {NOTICE}; systemctl restart {UNIT}")
    eventually(lambda: "State=IDLE+DYNAMIC" in node(cluster), 30, "a1 takes jobs again")


def test_a_notice_leaves_a_persons_drain_and_jobs_of_other_nodes_alone(metadata: Cluster) -> None:
    cluster = metadata
    options = "--parsable --output=/dev/null -w head"
    other = cluster.run_as("ada", "head", f"sbatch {options} --wrap 'sleep 600'").strip()
    eventually(lambda: cluster.job(other)["JobState"] == "RUNNING", 60, "the other job runs")
    cluster.run("head", "scontrol update nodename=a1 state=drain reason='new disk'")
    give_notice(cluster, json.dumps(AWS_NOTICE))
    journal = f"journalctl -u {UNIT} -o cat"
    eventually(lambda: "drained already: new disk" in cluster.run("a1", journal), 30, "the notice is seen")
    cluster.run("a1", f"rm {NOTICE}; systemctl restart {UNIT}")
    assert "Reason=new disk" in node(cluster)
    assert cluster.job(other)["JobState"] == "RUNNING"
    cluster.run("head", f"scancel {other}; scontrol update nodename=a1 state=resume")


def test_a_notice_of_google_is_read_too_and_without_the_key_nothing_of_it_is_left(metadata: Cluster) -> None:
    cluster = metadata
    pool = cluster.config["tailrack:sites"][0]["pools"][0]
    pool["spot"] = "gcp"
    cluster.up_ok()
    give_notice(cluster, "yes")
    eventually(lambda: "Reason=Google takes this machine back at" in node(cluster), 30, "a1 has the reason")
    cluster.run("a1", f"rm {NOTICE}")
    eventually(lambda: "State=IDLE+DYNAMIC" in node(cluster), 30, "the notice is withdrawn")
    del pool["spot"]
    cluster.up_ok()
    left = f"ls /etc/systemd/system/{UNIT} /usr/local/lib/tailrack/spot-notice; systemctl is-active {UNIT}"
    said = cluster.attempt("a1", left)
    assert (said.stdout.strip(), said.stderr.count("No such file")) == ("inactive", 2)
    cluster.up_ok()
    assert cluster.touched() == set()


def test_jobs_save_when_their_machine_shuts_down_and_go_on_elsewhere(cluster: Cluster) -> None:
    moving = submit(cluster, "", "saved", saving=SAVING)
    ending = submit(cluster, "--no-requeue", "last", saving=SAVING)
    subprocess.run(["docker", "stop", "-t", "150", cluster.container("a1")], check=True, capture_output=True)
    state = node(cluster)
    subprocess.run(["docker", "start", cluster.container("a1")], check=True, capture_output=True)
    assert (file(cluster, "saved"), file(cluster, "last")) == ("step 7\n", "step 7\n")
    assert "Reason=tailrack: shuts down" in state, state
    cluster.run("head", f"scontrol update jobid={moving} starttime=now || :")
    eventually(lambda: cluster.job(moving)["JobState"] == "COMPLETED", 90, "the job goes on")
    assert "It was requeued because node a1 shut down." in why(cluster, moving)
    assert "It was ended because node a1 shut down, and it cannot be requeued." in why(cluster, ending)
    eventually(lambda: "State=IDLE+DYNAMIC" in node(cluster), 90, "a1 is back")


def test_a_job_before_its_time_limit_saves_and_goes_back_to_the_queue(cluster: Cluster, limited: str) -> None:
    eventually(lambda: cluster.job(limited)["Restarts"] == "1", 90, "the job is requeued")
    assert file(cluster, "limited") == "step 7\n"
    cluster.run("head", f"scontrol update jobid={limited} starttime=now || :")
    eventually(lambda: cluster.job(limited)["JobState"] == "COMPLETED", 60, "the job goes on")
