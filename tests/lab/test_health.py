"""Scripts before and after jobs, and the look that drains nodes: real faults, and who is drained, why, until when."""

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually

Cluster = ClusterUnderTest
# What the user's own script does is in a file of the node's, so that one `up` serves all tests.
MINE = """#!/bin/bash
case $SLURM_SCRIPT_CONTEXT:$(cat /run/mine 2>/dev/null) in
    prolog_slurmd:fail) echo "next: make room in /scratch"; echo "no room in /scratch for job $SLURM_JOB_ID"; exit 3 ;;
    prolog_slurmd:hang) echo "waiting for /scratch"; sleep 300 ;;
esac
touch "/run/mine-$SLURM_SCRIPT_CONTEXT-$SLURM_JOB_ID"
"""
NODES = ("head", "a1", "b1")


@pytest.fixture(scope="module")
def cluster(full: Cluster) -> Cluster:
    """Three nodes with a script of the user's own before and after jobs."""
    full.config["tailrack:health"] = {"on_boot": "quick", "prolog": {"50-mine": MINE}, "epilog": {"50-mine": MINE}}
    full.up_ok()
    return full


@pytest.fixture(autouse=True)
def as_before(cluster: Cluster) -> Iterator[None]:
    """No job, no fault of a script and no drain is left."""
    yield
    cluster.run("head", "scancel -u ada")
    for name in NODES:
        cluster.run(name, "rm -f /run/mine")
    eventually(lambda: not cluster.run("head", "squeue -h").strip(), 60, "no jobs are left")
    for name in NODES:
        if drained(cluster, name):
            cluster.run("head", f"scontrol update nodename={name} state=resume")


def node(cluster: Cluster, name: str) -> dict[str, Any]:
    """What the controller knows of a node."""
    found: dict[str, Any] = json.loads(cluster.run("head", f"scontrol show node {name} --json"))["nodes"][0]
    return found


def drained(cluster: Cluster, name: str) -> bool:
    return "DRAIN" in node(cluster, name)["state"]


def reason(cluster: Cluster, name: str) -> str:
    return str(node(cluster, name)["reason"])


def look(cluster: Cluster, name: str) -> None:
    """What Slurm has a node do every two minutes."""
    cluster.run(name, "tailrack-nhc")


def findings(cluster: Cluster, name: str) -> list[dict[str, str]]:
    """What `tailrack-checks --json` finds, whatever it exits with."""
    found: list[dict[str, str]] = json.loads(cluster.attempt(name, "tailrack-checks --json").stdout)["findings"]
    return found


def two_jobs_of_the_site(cluster: Cluster) -> list[str]:
    """Two jobs that take a whole node each, one of them on a1 first; where they ran in the end."""
    cluster.run_as("ada", "head", "rm -f ~/ran")
    for _ in range(2):
        cluster.run_as(
            "ada", "head", "sbatch -p cloud-a --exclusive --output=/dev/null --wrap 'hostname >>~/ran; sleep 2'"
        )
    eventually(lambda: len(ran(cluster)) == 2, 300, "both jobs ran")
    return ran(cluster)


def ran(cluster: Cluster) -> list[str]:
    """Where jobs have run. Slurm would let one that went back to the queue wait for two minutes: it need not."""
    waits = "squeue -h -t PD -o '%i %r' | sed -n 's/ BeginTime$//p'"
    cluster.run("head", f"for job in $({waits}); do scontrol update jobid=$job starttime=now || :; done")
    return cluster.attempt("head", "cat /shared/home/ada/ran").stdout.split()


def test_a_healthy_node_is_not_drained_and_says_so(cluster: Cluster) -> None:
    for name in NODES:
        look(cluster, name)
        assert not drained(cluster, name), reason(cluster, name)
        done = cluster.attempt(name, "tailrack-checks")
        assert done.returncode == 0, done.stdout
        assert "error" not in {item["severity"] for item in findings(cluster, name)}


def test_a_node_takes_no_job_before_its_check_at_boot_ends(cluster: Cluster) -> None:
    # Let the check take long enough to be seen.
    slow = "[Service]\\nExecStart=\\nExecStart=sh -c 'sleep 40; exec tailrack-boot-check quick'"
    folder = "/etc/systemd/system/tailrack-boot-check.service.d"
    cluster.run("a1", f'mkdir -p {folder}; printf "{slow}\\n" >{folder}/slow.conf')
    subprocess.run(["docker", "restart", cluster.container("a1")], check=True, capture_output=True)
    eventually(lambda: "check at boot: it has not ended" in reason(cluster, "a1"), 90, "the node is drained")
    assert drained(cluster, "a1")
    eventually(lambda: not drained(cluster, "a1") and "IDLE" in node(cluster, "a1")["state"], 120, "it is back")
    cluster.run_as("ada", "head", "srun -w a1 true")
    cluster.run("a1", f"rm -r {folder}; systemctl daemon-reload")


def test_the_users_own_scripts_run_beside_ours(cluster: Cluster) -> None:
    number = cluster.run_as("ada", "head", "sbatch --parsable --wait -w a1 --output=/dev/null --wrap true").strip()
    eventually(lambda: f"mine-epilog_slurmd-{number}" in cluster.run("a1", "ls /run"), 60, "the epilog ran")
    assert f"mine-prolog_slurmd-{number}" in cluster.run("a1", "ls /run")
    # Ours of the epilog forget the job that ours of the prolog have noted.
    assert number not in cluster.run("a1", "ls /run/tailrack-private/jobs").split()


@pytest.mark.proof
def test_a_script_that_fails_drains_its_node_alone_and_the_job_runs_elsewhere(cluster: Cluster) -> None:
    cluster.run("a1", "echo fail >/run/mine")
    assert two_jobs_of_the_site(cluster) == ["head", "head"]
    eventually(lambda: "50-mine" in reason(cluster, "a1"), 60, "the reason names the script")
    assert reason(cluster, "a1").startswith("Prolog error: prolog.d/50-mine: ended with status 3: no room in /scratch")
    assert [drained(cluster, name) for name in NODES] == [False, True, False]
    told = json.loads(cluster.run("head", "tailrack nodes --json a1"))["nodes"][0]
    assert (told["whose"], told["next"]) == ("prolog", "make room in /scratch, then tailrack resume a1")
    assert "no room in /scratch for job" in told["reason"]
    kept = json.loads(cluster.run("a1", "cat /run/tailrack/last-failure.json"))
    assert (kept["script"], kept["remedy"]) == ("prolog.d/50-mine", "make room in /scratch")
    assert cluster.run("a1", "stat -c '%U %a' /run/tailrack/last-failure.json").split() == ["root", "644"]
    assert "no room in /scratch" in cluster.run("a1", "journalctl -t tailrack-prolog -o cat --no-pager")
    # A look that finds nothing wrong takes back what it has drained itself, and no other drain.
    look(cluster, "a1")
    assert drained(cluster, "a1")


def test_a_measurement_that_a_prolog_refuses_names_the_script_and_so_does_the_next(cluster: Cluster) -> None:
    cluster.run("a1", "echo fail >/run/mine")
    reasons = []
    for number in ("first", "second"):
        cluster.config["tailrack:validation"]["rerun"] = f"refused {number}"
        cluster.up_ok()
        result = cluster.deployment().outputs()["validation"]["cloud-a"]
        assert (result["verdict"], result["left_out"]) == ("INCONCLUSIVE", ["a1"]), result["reason"]
        reasons.append(result["reason"])
    drained_for = "a1 (drained: Prolog error: prolog.d/50-mine: ended with status 3: no room in /scratch for job"
    assert all(f"Nothing was measured: {drained_for}" in reason for reason in reasons), reasons
    cluster.run("head", 'test -z "$(scontrol -o show jobs | grep JobState=PENDING)"')


@pytest.mark.proof
def test_a_script_that_hangs_is_ended_and_drains_its_node(cluster: Cluster) -> None:
    cluster.run("a1", "echo hang >/run/mine")
    assert two_jobs_of_the_site(cluster) == ["head", "head"]
    eventually(lambda: "took longer than 20 s" in reason(cluster, "a1"), 60, "the reason says what it was")
    assert "waiting for /scratch" in reason(cluster, "a1")
    assert [drained(cluster, name) for name in NODES] == [False, True, False]
    assert "sleep 300" not in cluster.run("a1", "ps -eo args")


@pytest.fixture
def full_disk(cluster: Cluster) -> Iterator[None]:
    """A place of a1 that programs write in is a small file system without room."""
    # A fault that was there in a test before has been gone.
    look(cluster, "a1")
    # `head` ends with an error, because there is no room for all of it.
    cluster.run("a1", "mount -t tmpfs -o size=1M tmpfs /var/tmp; head -c 2000000 /dev/zero >/var/tmp/full || true")
    yield
    cluster.attempt("a1", "umount /var/tmp")


@pytest.mark.proof
@pytest.mark.usefixtures("full_disk")
def test_slurm_itself_has_a_node_with_a_full_disk_drained_and_taken_back(cluster: Cluster) -> None:
    eventually(lambda: drained(cluster, "a1"), 280, "Slurm's own look has drained it")
    assert reason(cluster, "a1").startswith("health: disk: /var/tmp is full: 0.0 GiB of 0.0 GiB are free; next: find")
    assert node(cluster, "a1")["reason_set_by_user"] == "root"
    done = cluster.attempt("a1", "tailrack-checks")
    assert done.returncode == 1
    assert "tmp is full" in done.stdout
    cluster.run("a1", "rm /var/tmp/full")
    look(cluster, "a1")
    assert not drained(cluster, "a1")


@pytest.mark.usefixtures("full_disk")
def test_a_persons_drain_stays_for_any_reason(cluster: Cluster) -> None:
    look(cluster, "a1")
    own = reason(cluster, "a1")
    assert own.startswith("health: ")
    eventually(
        lambda: int(cluster.run("head", "date +%s")) > int(node(cluster, "a1")["reason_changed_at"]["number"]), 5, "now"
    )
    # The same words, and somebody else's. (Slurm takes no notice of a drain that is there already, word for word.)
    cluster.run("head", "scontrol update nodename=a1 state=resume")
    cluster.run("head", f"scontrol update nodename=a1 state=drain reason={json.dumps(own)}")
    cluster.run("a1", "rm /var/tmp/full")
    look(cluster, "a1")
    assert drained(cluster, "a1")
    assert reason(cluster, "a1") == own


@pytest.mark.usefixtures("full_disk")
def test_a_person_may_resume_a_faulty_node(cluster: Cluster) -> None:
    look(cluster, "a1")
    assert drained(cluster, "a1")
    cluster.run("head", "scontrol update nodename=a1 state=resume")
    look(cluster, "a1")
    look(cluster, "a1")
    assert not drained(cluster, "a1")
    # And a fault that has been gone in between is a new one.
    cluster.run("a1", "mv /var/tmp/full /root/full")
    look(cluster, "a1")
    cluster.run("a1", "cp /root/full /var/tmp/full; rm /root/full")
    look(cluster, "a1")
    assert drained(cluster, "a1")


@pytest.mark.usefixtures("full_disk")
def test_a_node_that_is_well_again_has_its_drain_taken_back_by_the_next_up(cluster: Cluster) -> None:
    look(cluster, "a1")
    assert drained(cluster, "a1")
    cluster.run("a1", "rm /var/tmp/full")
    # Another script is another step of the node's; by itself it would look in two minutes.
    cluster.config["tailrack:health"]["prolog"] = {"50-mine": f"{MINE}# Changed.\n"}
    cluster.up_ok()
    assert not drained(cluster, "a1"), reason(cluster, "a1")


@pytest.mark.proof
@pytest.mark.usefixtures("full_disk")
def test_a_node_that_registers_again_drains_again_and_resumes_without_the_error(cluster: Cluster) -> None:
    look(cluster, "a1")
    assert drained(cluster, "a1")
    # As a step does that gives the node other features; its drain goes with it.
    cluster.run("a1", "systemctl stop slurmd")
    cluster.run("head", "scontrol delete nodename=a1")
    cluster.run("a1", "systemctl start --no-block slurmd")
    eventually(lambda: cluster.attempt("head", "scontrol show node a1").returncode == 0, 60, "a1 is known again")
    look(cluster, "a1")
    assert reason(cluster, "a1").startswith("health: disk: ")
    cluster.run("a1", "rm /var/tmp/full")
    look(cluster, "a1")
    assert not drained(cluster, "a1")
    # Its place in the topology, which a step would give it.
    cluster.run("head", "scontrol reconfigure")
    assert cluster.run_as("ada", "head", "srun -w a1 --immediate=60 hostname", limit=90) == "a1\n"


@pytest.mark.proof
@pytest.mark.usefixtures("full_disk")
def test_a_node_that_was_shut_down_with_its_drain_is_taken_back_with_the_error(cluster: Cluster) -> None:
    look(cluster, "a1")
    own = reason(cluster, "a1")
    assert own.startswith("health: disk: ")
    # As tailrack-shutdown does; a restart of slurmd stands for the machine's.
    cluster.run("a1", "systemctl stop slurmd")
    cluster.run("head", f"scontrol update nodename=a1 state=down reason={json.dumps(own)}")
    cluster.run("a1", "systemctl start --no-block slurmd")
    eventually(lambda: "DOWN" not in node(cluster, "a1")["state"], 60, "a1 is back")
    look(cluster, "a1")
    assert drained(cluster, "a1")
    cluster.run("a1", "rm /var/tmp/full")
    look(cluster, "a1")
    assert not drained(cluster, "a1")


def test_a_node_without_the_share_is_drained_until_it_has_it_again(cluster: Cluster) -> None:
    cluster.run("a1", "systemctl stop shared.automount shared.mount")

    def drained_for_it() -> bool:
        look(cluster, "a1")
        return reason(cluster, "a1").startswith("health: share: /shared is not mounted; next: ")

    try:
        look(cluster, "a1")
        assert not drained(cluster, "a1"), "what has just gone may be back at the next look"
        eventually(drained_for_it, 90, "it has lasted")
    finally:
        cluster.run("a1", "systemctl start shared.automount")
    look(cluster, "a1")
    assert not drained(cluster, "a1")


def test_leftovers_end_with_the_users_last_job(cluster: Cluster) -> None:
    leave = "setsid nohup sleep 4321 >/dev/null 2>&1 & echo mine >/dev/shm/ada-left"
    cluster.run_as("ada", "head", f"srun -w a1 bash -c {json.dumps(leave)}")
    eventually(lambda: "sleep 4321" not in cluster.run("a1", "ps -eo args"), 60, "the process is ended")
    eventually(lambda: "ada-left" not in cluster.run("a1", "ls /dev/shm"), 60, "the memory is given back")
    assert not drained(cluster, "a1")


def test_another_job_of_the_same_user_keeps_its_own_files(cluster: Cluster) -> None:
    number = cluster.run_as(
        "ada", "head",
        "sbatch --parsable -w a1 -n1 --output=/dev/null --wrap 'echo mine >/dev/shm/ada-own; sleep 120'",
    ).strip()  # fmt: skip
    eventually(lambda: "ada-own" in cluster.run("a1", "ls /dev/shm"), 60, "it runs")
    cluster.run_as("ada", "head", "srun -w a1 -n1 true")
    eventually(
        lambda: cluster.run("a1", "ls /run/tailrack-private/jobs").split() == [number], 60, "the other one has ended"
    )
    cluster.run_as("ada", "head", "srun -w a1 -n1 true")
    assert "ada-own" in cluster.run("a1", "ls /dev/shm")
    assert number in cluster.run("head", "squeue -h -t R -o %A").split()
    cluster.run("head", f"scancel {number}")
    eventually(lambda: "ada-own" not in cluster.run("a1", "ls /dev/shm"), 60, "the last one takes it along")
