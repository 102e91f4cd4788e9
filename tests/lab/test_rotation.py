"""The munge key is changed in a busy cluster: no job is lost, starts pause for seconds; who missed it is mended."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.cluster import ClusterUnderTest, as_user, eventually, patience

NODES = ("head", "a1", "b1")
# Submits a job each second until it is told to stop; each line is a job's number, or what sbatch said.
SUBMIT = """
cd /tmp && touch submitted
while [ ! -e enough ]; do sbatch --parsable --output=/dev/null --wrap 'sleep 1' >>submitted 2>&1; sleep 1; done
"""


@pytest.fixture
def submitted(cluster: ClusterUnderTest) -> Iterator[None]:
    """Jobs come each second while the test runs."""
    # Left by root, which nobody else may take out of /tmp.
    cluster.run("head", "rm -f /tmp/enough /tmp/submitted")
    cluster.run("head", f"setsid {as_user('ada', SUBMIT)} </dev/null >/dev/null 2>&1 &")
    eventually(lambda: cluster.attempt("head", "test -s /tmp/submitted").returncode == 0, 60, "jobs are submitted")
    yield
    cluster.run("head", "touch /tmp/enough")


def lines(cluster: ClusterUnderTest) -> list[str]:
    """What sbatch has said so far."""
    return cluster.run("head", "cat /tmp/submitted").splitlines()


def jobs(cluster: ClusterUnderTest) -> dict[int, dict[str, Any]]:
    """All jobs that slurmctld remembers, by number."""
    told = json.loads(cluster.run("head", "scontrol show jobs --json"))["jobs"]
    return {int(job["job_id"]): job for job in told}


def number(value: Any) -> int:
    """A number as Slurm's JSON has it."""
    return int(value["number"]) if isinstance(value, dict) else int(value)


@pytest.mark.usefixtures("submitted")
def test_the_munge_key_is_changed_under_load_and_no_job_is_lost(cluster: ClusterUnderTest) -> None:
    long = [
        int(cluster.run_as("ada", "head", f"sbatch --parsable -w {node} -n1 --output=/dev/null --wrap 'sleep 60'"))
        for node in NODES
    ]
    eventually(
        lambda: all(jobs(cluster)[job]["job_state"] == ["RUNNING"] for job in long), 60, "a job runs on each node"
    )
    eventually(lambda: len(lines(cluster)) > 5, 60, "jobs are submitted")
    before = cluster.run("head", "sha256sum /etc/munge/munge.key")
    cluster.config["tailrack:cluster"]["munge_generation"] = "under load"
    cluster.up_ok()
    assert cluster.touched() == {"munge-key", "head-services", *(f"{node}-prepare" for node in NODES)}
    after = {cluster.run(node, "sha256sum /etc/munge/munge.key; ls /etc/munge") for node in NODES}
    assert len(after) == 1
    assert before not in after.pop()
    come = len(lines(cluster))
    eventually(lambda: len(lines(cluster)) > come + 5, 60, "jobs are submitted still")
    cluster.run("head", "touch /tmp/enough")
    eventually(lambda: not cluster.run("head", "squeue -h").strip(), 240, "all jobs have ended")
    said, known = lines(cluster), jobs(cluster)
    ids = [int(line) for line in said if line.isdecimal()]
    refused = [line for line in said if not line.isdecimal()]
    # munge has one key at a time: a request that was signed just before it is refused, and its caller is told.
    assert len(refused) <= 2, refused
    for job in [*ids, *long]:
        assert known[job]["job_state"] == ["COMPLETED"], known[job]
        assert number(known[job]["restart_cnt"]) == 0
    starts = sorted(number(known[job]["start_time"]) for job in ids)
    gap = max(later - sooner for sooner, later in itertools.pairwise(starts))
    print(f"{len(ids)} jobs, {len(refused)} refused; longest time without a start {gap} s")
    assert gap <= 60 * patience()
    assert cluster.attempt("head", "test -e /var/lib/tailrack/munge.held").returncode == 1
    assert "down" not in cluster.run("head", "sinfo -h -o %a")


@pytest.mark.proof
def test_a_node_that_cannot_be_reached_is_named_and_mended_by_the_next_up(cluster: ClusterUnderTest) -> None:
    cluster.run("b1", "systemctl stop ssh.socket ssh.service 2>/dev/null || systemctl stop ssh")
    cluster.config["tailrack:cluster"]["munge_generation"] = "without b1"
    try:
        summary = cluster.up()
        said = [failure.message for failure in summary.failures]
        assert any("the munge key was changed, and b1 did not get it: no job starts there" in text for text in said), (
            said
        )
        assert cluster.run_as("ada", "head", "srun -w a1 --immediate=30 hostname") == "a1\n"
    finally:
        cluster.run("b1", "systemctl start ssh")
    cluster.up_ok()
    # The key before is deleted from the state now that nothing fails; no other one is made. The CLI measures again: it
    # drops the results that a failed run had no values for.
    others = {"munge-key"} | ({"validate-cross-site"} if cluster.found.cli else set())
    assert cluster.touched() - others == {"b1-prepare", "head-services"}
    eventually(lambda: cluster.attempt("head", "scontrol show node b1 | grep -q State=IDLE").returncode == 0, 60, "b1")
    assert cluster.run_as("ada", "head", "srun -w b1 --immediate=30 hostname", limit=90) == "b1\n"


@pytest.mark.proof
def test_after_a_change_that_was_killed_no_job_starts_on_a_node_with_another_key(cluster: ClusterUnderTest) -> None:
    # A node whose key changes during an epilog would report the job's end only minutes later.
    eventually(lambda: "comp" not in cluster.run("head", "sinfo -h -o %t"), 60, "no measurement is ending")
    # What is left where the step is killed after b1 has changed, and before slurmctld has.
    cluster.run("b1", "head -c 48 /dev/urandom | base64 -w 0 >/etc/munge/munge.key; systemctl restart munge")
    cluster.run("head", "scontrol update partitionname=all state=down")
    cluster.run("head", "printf '%s\\n' a1 b1 >/var/lib/tailrack/munge.late")
    cluster.run("head", "echo all >/var/lib/tailrack/munge.held; tailrack-munge-release")
    told = {node["name"]: node for node in json.loads(cluster.run("head", "tailrack nodes --json"))["nodes"]}
    assert (told["b1"]["whose"], told["b1"]["reason"]) == ("tailrack", "tailrack: has another munge key")
    assert not told["a1"]["out"]
    assert cluster.run_as("ada", "head", "srun -w a1 --immediate=30 hostname") == "a1\n"
    words = "sbatch --parsable --no-requeue -w b1 --output=/dev/null --wrap true"
    number = cluster.run_as("ada", "head", words).strip()
    cluster.config["tailrack:cluster"]["munge_generation"] = "after one that was killed"
    cluster.up_ok()
    eventually(lambda: "COMPLETED" in cluster.run("head", f"scontrol show job {number}"), 120, "the job ran on b1")
    assert "all 3 nodes take work" in cluster.run("head", "tailrack nodes")
