"""`tailrack why`: real jobs that wait or have failed, each told to its user in words."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually


@pytest.fixture
def quiet(cluster: ClusterUnderTest) -> Iterator[ClusterUnderTest]:
    """A cluster whose nodes all take work, before and after."""
    yield cluster
    cluster.run("head", "scancel -u ada; scontrol update nodename=a1 state=resume || :")
    eventually(lambda: "all 3 nodes take work" in cluster.run("head", "tailrack nodes"), 60, "all nodes take work")
    eventually(lambda: not cluster.run("head", "squeue -h"), 60, "no job is left")


def submit(cluster: ClusterUnderTest, words: str, script: str = "sleep 300") -> str:
    """Submit a job as ada; its number."""
    return cluster.submit(f"{words} --wrap '{script}'")


def why(cluster: ClusterUnderTest, job: str) -> str:
    """What ada is told of a job, in one line."""
    done = cluster.attempt("head", f"runuser -u ada -- tailrack why {job}")
    return " ".join((done.stdout + done.stderr).split())


def told(cluster: ClusterUnderTest, job: str, *words: str) -> None:
    """Wait until ada is told all of these words."""
    eventually(lambda: all(word in why(cluster, job) for word in words), 60, f"of {job} is told {words}")


def test_a_user_sees_the_reason_for_a_waiting_job_and_the_remedy(quiet: ClusterUnderTest) -> None:
    held = submit(quiet, "--hold")
    told(quiet, held, f"job {held} (wrap) of ada: pending", "held by its user", f"scontrol release {held}")
    quiet.run("head", "scontrol update nodename=a1 state=drain reason='new disk'")
    drained = submit(quiet, "-w a1")
    told(quiet, drained, "take no jobs", "a1 (drained): new disk", "next: tailrack nodes")
    first = submit(quiet, "-w b1 --exclusive")
    told(quiet, first, "It has been running on b1 since")
    second = submit(quiet, "-w b1 --exclusive")
    told(quiet, second, "It waits for 1 node with", "1 of 3 nodes is idle now")
    later = submit(quiet, f"--dependency=afterok:{first}")
    told(quiet, later, f"It waits for other jobs: afterok:{first}")
    begins = submit(quiet, "--begin=now+1hour")
    told(quiet, begins, "--begin sets")


def test_a_user_sees_how_a_job_ended(quiet: ClusterUnderTest) -> None:
    told(quiet, submit(quiet, "", "exit 3"), "exit status 3")
    told(quiet, submit(quiet, "", "no-such-program"), "A command was not found on the node")
    told(quiet, submit(quiet, "", "true"), "It completed successfully")
    cancelled = submit(quiet, "-w b1")
    told(quiet, cancelled, "It has been running on b1")
    quiet.run_as("ada", "head", f"scancel {cancelled}")
    told(quiet, cancelled, "It was cancelled")
    failed = submit(quiet, "", "exit 1")
    told(quiet, failed, "exit status 1")
    never = submit(quiet, f"--dependency=afterok:{failed}")
    told(quiet, never, "It never starts", f"scancel {never}")


def test_array_tasks_have_separate_reasons_and_programs_read_json(quiet: ClusterUnderTest) -> None:
    array = submit(quiet, "--array=0-1", "exit $SLURM_ARRAY_TASK_ID")
    told(quiet, f"{array}_1", f"job {array}_1 (wrap) of ada: failed", "exit status 1")
    whole: dict[str, Any] = json.loads(quiet.run_as("ada", "head", f"tailrack why --json {array}"))
    assert {job["job"]: job["state"] for job in whole["jobs"]} == {f"{array}_0": "COMPLETED", f"{array}_1": "FAILED"}
    assert why(quiet, "999999").startswith("tailrack: there is no job 999999")


def test_a_job_that_asks_for_it_starts_again_without_the_node_that_failed(quiet: ClusterUnderTest) -> None:
    script = '[ "$SLURM_RESTART_COUNT" ] || { sleep 15; exit 1; }'
    job = submit(quiet, "-N2 --switches=2 --comment=retry", script)
    eventually(lambda: quiet.job(job)["JobState"] == "RUNNING", 60, "the job runs")
    first = quiet.run("head", f"scontrol show hostnames {quiet.job(job)['NodeList']}").split()
    failed = next(name for name in first if name != "head")
    quiet.run("head", f"scontrol update nodename={failed} state=drain reason='health: GPU 0: lost'")
    told(quiet, job, "exit status 1")
    eventually(lambda: quiet.job(job)["JobState"] == "COMPLETED", 200, "the job has run without the node")
    assert failed not in quiet.run("head", f"scontrol show hostnames {quiet.job(job)['NodeList']}").split()
    told(quiet, job, f"It was requeued because node {failed} failed (health: GPU 0: lost)")
    quiet.run("head", f"scontrol update nodename={failed} state=resume")
