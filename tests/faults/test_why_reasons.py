"""`tailrack why`: every reason that Slurm can be brought to here, each by a real job (the common ones: test_why.py)."""

from collections.abc import Iterator, Sequence

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually
from tests.lab.test_why import submit, told
from tests.lab.test_why import why as why_of

Cluster = ClusterUnderTest
# The user's own script before jobs: what it does stands in a file of the node's.
PROLOG = """#!/bin/bash
case $(cat /run/mine 2>/dev/null) in
    fail) echo "no room in /scratch"; exit 3 ;;
    wait) for _ in $(seq 120); do [ -e /run/mine ] || exit 0; sleep 1; done ;;
esac
"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """The dev stack with books, two QOS of which one preempts, a license, and a script before jobs."""
    made = make_cluster("reasons")
    made.config["tailrack:accounting"] = {
        "qos": [{"name": "high", "priority": 100, "preempts": ["low"]}, {"name": "low"}, {"name": "one", "max_jobs": 1}]
    }
    made.config["tailrack:users"] = [{"name": "ada", "uid": 6001, "qos": ["high", "low", "one"]}]
    made.config["tailrack:slurm"]["settings"] = {
        "Licenses": "solver:1",
        "MinJobAge": 7200,
        # As where jobs are confined: the prolog runs as a job gets its nodes.
        "PrologFlags": "Alloc",
    }
    made.config["tailrack:slurm"]["ssh_needs_job"] = False
    made.config["tailrack:health"] = {"prolog": {"50-mine": PROLOG}}
    made.up_ok()
    return made


UNDO = """
rm -f /run/mine
scancel -u ada
scontrol delete reservationname=later
scontrol delete reservationname=repair
scontrol update partitionname=cloud-b state=up maxtime=infinite maxnodes=unlimited allowgroups=all allowqos=all
scontrol update nodename=b1 availablefeatures= activefeatures=
for node in head a1 b1; do scontrol update nodename=$node state=resume; done
true"""


@pytest.fixture(autouse=True)
def as_before(cluster: Cluster) -> Iterator[None]:
    """What a test has changed is undone, and no job is left."""
    yield
    cluster.run("b1", "rm -f /run/mine")
    cluster.run("head", UNDO)
    eventually(lambda: not cluster.run("head", "squeue -h").strip(), 60, "no job is left")


def as_root(cluster: Cluster, command: str) -> None:
    """Run it on the head node."""
    cluster.run("head", command)


# Of a job that is held until root has changed something: its options, what is changed, and what ada is told then.
CHANGED: Sequence[tuple[str, str, Sequence[str]]] = (
    ("-p cloud-b", "scontrol update partitionname=cloud-b state=down", ("Partition cloud-b starts no jobs now",)),
    ("-p cloud-b", "scontrol update partitionname=cloud-b state=inactive", ("has closed partition cloud-b",)),
    (
        "-p cloud-b --time=60",
        "scontrol update partitionname=cloud-b maxtime=10",
        ("requests more time than partition cloud-b allows", "timelimit="),
    ),
    ("-p cloud-b", "scontrol update partitionname=cloud-b maxnodes=0", ("requests more nodes than partition cloud-b",)),
    (
        "-p cloud-b",
        "scontrol update partitionname=cloud-b allowgroups=daemon",
        ("Its user, or its account 'users', may not use partition cloud-b",),
    ),
    ("-p cloud-b -q low", "scontrol update partitionname=cloud-b allowqos=high", ("QOS 'low' is not allowed here",)),
)


@pytest.mark.parametrize(("options", "change", "words"), CHANGED, ids=[change for _, change, _ in CHANGED])
def test_why_names_a_partition_that_accepts_no_more_jobs(
    cluster: Cluster, options: str, change: str, words: Sequence[str]
) -> None:
    job = submit(cluster, f"--hold {options}")
    as_root(cluster, change)
    # Which is refused where the partition is closed; the job is let go either way.
    cluster.attempt("head", f"scontrol release {job}")
    # In some runs slurmctld considers the job 100 s later, and gives no reason until then.
    eventually(lambda: all(word in why_of(cluster, job) for word in words), 180, f"of {job} ada is told {words}")


def test_why_names_the_holder_of_a_job(cluster: Cluster) -> None:
    job = submit(cluster, "--begin=now+1hour")
    as_root(cluster, f"scontrol hold {job}")
    told(cluster, job, "held by an administrator")


def test_why_names_an_array_task_that_waits_for_its_siblings(cluster: Cluster) -> None:
    array = submit(cluster, "-w b1 --array=0-1%1")
    told(cluster, f"{array}_0", "It has been running on b1")
    told(cluster, f"{array}_1", "as many tasks at once as allowed")


def test_why_names_a_request_that_no_node_can_meet_any_more(cluster: Cluster) -> None:
    as_root(cluster, "scontrol update nodename=b1 availablefeatures=fast activefeatures=fast")
    job = submit(cluster, "--hold -C fast")
    as_root(cluster, "scontrol update nodename=b1 availablefeatures= activefeatures=")
    as_root(cluster, f"scontrol release {job}")
    told(cluster, job, "No node can provide what it requests", "features 'fast'")


def test_why_names_a_license_that_another_job_uses(cluster: Cluster) -> None:
    first = submit(cluster, "-L solver")
    told(cluster, first, "It has been running on")
    told(cluster, submit(cluster, "-L solver"), "waits for licenses that other jobs use")


def test_why_names_reservations_for_their_owner_and_for_other_users(cluster: Cluster) -> None:
    as_root(
        cluster, "scontrol create reservation reservationname=later starttime=now+1hour duration=60 users=ada nodes=a1"
    )
    told(cluster, submit(cluster, "--reservation=later"), "waits for its reservation 'later' to start")
    as_root(
        cluster,
        "scontrol create reservation reservationname=repair starttime=now duration=60 users=root flags=maint nodes=b1",
    )
    told(cluster, submit(cluster, "-w b1"), "are reserved for maintenance or for others", "scontrol show reservation")


def test_why_names_a_site_limit_and_the_earlier_jobs_in_the_queue(cluster: Cluster) -> None:
    wide = submit(cluster, "-N3 --exclusive")
    told(cluster, wide, "All its nodes must be in 1 site", "--switches=2 lets a job span more")
    told(cluster, submit(cluster, "-w b1 --exclusive"), "It has been running on b1")
    for _ in range(2):
        last = submit(cluster, "-w b1 --exclusive")
    told(cluster, last, "other jobs are ahead of it")


def test_why_names_a_limit_and_its_owner(cluster: Cluster) -> None:
    told(cluster, submit(cluster, "-q one"), "It has been running on")
    told(cluster, submit(cluster, "-q one"), "A limit of QOS 'one' holds it", "running jobs have reached it")


def test_why_names_a_running_and_a_failing_prolog(cluster: Cluster) -> None:
    cluster.run("b1", "echo wait >/run/mine")
    slow = submit(cluster, "-w b1 --exclusive")
    told(cluster, slow, "Its prolog is running on its nodes")
    cluster.run("b1", "rm /run/mine")
    told(cluster, slow, "It has been running on b1")
    as_root(cluster, f"scancel {slow}")
    cluster.run("b1", "echo fail >/run/mine")
    failed = submit(cluster, "-w b1")
    told(cluster, failed, "went back to the queue, 1 time so far", "could not start it")
    # After Slurm's pause.
    eventually(
        lambda: "take no jobs" in (said := why_of(cluster, failed)) and "no room in" in said, 200, "its node is out"
    )


def test_why_names_a_node_that_cannot_start_a_job(cluster: Cluster) -> None:
    spool = "/var/spool/slurmd"
    cluster.run("b1", f"mount -t tmpfs -o ro tmpfs {spool}")
    try:
        told(cluster, submit(cluster, "-w b1"), "went back to the queue, 1 time so far", "could not start it")
    finally:
        cluster.run("b1", f"umount {spool}")
        # Which looks at the node anew: its own check has seen the disk too.
        cluster.run("head", "tailrack resume b1", 120)


def test_why_names_the_end_of_a_job(cluster: Cluster) -> None:
    for script, words in (
        ("/etc/passwd", "not executable (exit status 126)"),
        ('bash -c "kill -9 \\$\\$"; exit', "was killed (exit status 137)"),
        ('bash -c "kill -SEGV \\$\\$"; exit', "invalid memory access (exit status 139)"),
        ("kill -TERM $$", "ended by signal 15 (SIGTERM)"),
    ):
        told(cluster, submit(cluster, "", script), words)
    cancelled = submit(cluster, "-w b1")
    told(cluster, cancelled, "It has been running on b1")
    as_root(cluster, f"scancel {cancelled}")
    told(cluster, cancelled, "It was cancelled by root")


def test_why_names_a_job_that_exceeds_its_memory(cluster: Cluster) -> None:
    greedy = submit(
        cluster, "-w a1 --mem=50M", 'python3 -c "import time; x = bytes([120]) * (300 << 20); time.sleep(120)"'
    )
    # By Slurm's own look, as jobs are not confined here; the kernel's end of a confined one is OUT_OF_MEMORY.
    told(cluster, greedy, "It was killed by signal 9 (SIGKILL), often for lack of memory: it had 50M in total", "--mem")


def test_why_names_jobs_that_run_out_of_time(cluster: Cluster) -> None:
    late = submit(cluster, "--hold --time=1 --deadline=now+70seconds")
    long = submit(cluster, "-w b1 --time=1")
    eventually(lambda: "its time limit of 1 minutes" in why_of(cluster, long), 150, "it is ended at its limit")
    eventually(lambda: "before its --deadline" in why_of(cluster, late), 150, "it never begins")


def test_why_names_a_preempted_job_and_a_job_with_a_lost_node(cluster: Cluster) -> None:
    low = submit(cluster, "-w b1 --exclusive -q low --no-requeue")
    told(cluster, low, "It has been running on b1")
    told(cluster, submit(cluster, "-w b1 --exclusive -q high --no-requeue"), "It has been running on b1")
    told(cluster, low, "A job of higher priority took its nodes")
    lost = submit(cluster, "-w a1 --no-requeue")
    told(cluster, lost, "It has been running on a1")
    as_root(cluster, "scontrol update nodename=a1 state=down reason=gone")
    told(cluster, lost, "One of its nodes was lost: a1", "tailrack nodes")
