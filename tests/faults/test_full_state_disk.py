"""The disk of slurmctld's state is full, and slurmctld is killed: no job that has ended runs a second time."""

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually

FOLDER = "/var/lib/slurm"
STATE = f"{FOLDER}/slurmctld"
FILL = f"head -c 2G /dev/zero >>{FOLDER}/filler 2>/dev/null; true"
# A small disk in the place of the head node's own, with what was there.
SMALL_DISK = f"""systemctl stop slurmctld tailrack-slurm-room && cp -a {FOLDER} /tmp/slurm-before &&
mount -t tmpfs -o size=200m,mode=0755 tmpfs {FOLDER} &&
cp -a /tmp/slurm-before/. {FOLDER}/ && systemctl start slurmctld tailrack-slurm-room"""


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A head node and a compute node, without a database on the disk that is filled."""
    made = make_cluster("k2")
    del made.config["tailrack:sites"][1:]
    made.config["tailrack:accounting"] = {"enabled": False}
    made.up_ok()
    made.run("head", SMALL_DISK)
    eventually(lambda: succeeds(made, f"test -e {STATE}/tailrack-room"), 30, "room is reserved")
    return made


def succeeds(cluster: ClusterUnderTest, command: str) -> bool:
    return cluster.attempt("head", command).returncode == 0


def running_job(cluster: ClusterUnderTest, seconds: int) -> str:
    """Submit a job; return its number when slurmctld has saved that it runs."""
    words = f"sbatch --parsable -n1 --output=/dev/null --wrap 'sleep {seconds}'"
    job = cluster.run_as("ada", "head", words).strip()
    eventually(lambda: state(cluster, job) == "RUNNING", 60, "the job runs")
    cluster.run("head", f"touch /tmp/running; scontrol update jobid={job} comment=running")
    eventually(lambda: succeeds(cluster, f"test {STATE}/job_state -nt /tmp/running"), 30, "that is saved")
    return job


def state(cluster: ClusterUnderTest, job: str) -> str:
    return cluster.attempt("head", f"scontrol show job {job} | grep -oP 'JobState=\\K\\w+'").stdout.strip()


def answers(cluster: ClusterUnderTest) -> bool:
    return succeeds(cluster, "timeout 10 scontrol ping | grep 'is UP'")


def test_the_reserved_room_lets_slurmctld_save_ended_jobs_on_a_full_disk(cluster: ClusterUnderTest) -> None:
    job = running_job(cluster, 30)
    cluster.run("head", FILL)
    eventually(lambda: not succeeds(cluster, f"test -e {STATE}/tailrack-room"), 25, "the room is given up")
    assert "next: make room" in cluster.run("head", "journalctl -p err -u tailrack-slurm-room -o cat --no-pager")
    eventually(lambda: state(cluster, job) == "COMPLETED", 90, "the job ends")
    # Another job is a change that slurmctld saves within seconds, the end with it.
    cluster.run("head", "touch /tmp/ended")
    cluster.run_as("ada", "head", "sbatch --hold --output=/dev/null --wrap true")
    eventually(lambda: succeeds(cluster, f"test {STATE}/job_state -nt /tmp/ended"), 30, "its end is saved")
    cluster.run("head", "systemctl kill -s KILL slurmctld")
    eventually(lambda: answers(cluster), 60, "slurmctld answers")
    assert state(cluster, job) == "COMPLETED"
    cluster.run("head", f"rm {FOLDER}/filler")


def test_slurmctld_does_not_start_from_a_state_that_lacks_its_last_changes(cluster: ClusterUnderTest) -> None:
    eventually(lambda: succeeds(cluster, f"test -e {STATE}/tailrack-room"), 60, "room is reserved again")
    running_job(cluster, 600)
    # Whoever fills the disk takes the room that was reserved too.
    eventually(lambda: succeeds(cluster, f"{FILL}; test -e {STATE}/tailrack-unsaved"), 60, "nothing can be saved")
    cluster.run("head", f"systemctl kill -s KILL slurmctld; rm {FOLDER}/filler")
    said = "journalctl -u slurmctld -o cat --no-pager | grep 'Jobs that ended since then would run again'"
    eventually(lambda: succeeds(cluster, said), 60, "slurmctld does not start")
    assert not answers(cluster)
    cluster.run("head", "tailrack-slurm-room accept")
    eventually(lambda: answers(cluster), 60, "slurmctld answers")
