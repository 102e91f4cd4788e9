"""A far site is cut off and comes back: its jobs go on, its writers wait, and a minute later all is as before."""

import threading
import time

import pytest

from components.roles.slurm.slurm.slurm_conf import SLURMD_TIMEOUT
from tests.faults.outage import Writers, cut
from tests.lab.cluster import ClusterUnderTest, as_user, eventually
from tests.slurm_silence import silence

# Seconds from what slurmctld does until it is seen from here.
SEEN = 5
# Seconds from healing until the node has work and writes again.
BACK = 60


def runs(cluster: ClusterUnderTest, job: str) -> bool:
    return cluster.run("head", f"squeue -h -j {job} -o %T").strip() == "RUNNING"


def shown(cluster: ClusterUnderTest, node: str) -> str:
    """Slurm's short word for a node's state; a star behind it says that the node is silent."""
    return cluster.attempt("head", f"sinfo -h -p all -n {node} -o %t").stdout.strip()


# Both times are harmless, whenever slurmctld has last asked (tests/slurm_silence.py). In the short form it
# notices because it tells all nodes to reconfigure.
@pytest.mark.parametrize("seconds", [70, silence(SLURMD_TIMEOUT).harmless - 5])
def test_a_far_node_that_was_cut_off_works_and_writes_within_a_minute_and_nothing_is_lost(
    cluster: ClusterUnderTest, seconds: float
) -> None:
    batch = "sbatch --parsable -C site-cloud-b --output=/dev/null --wrap 'while [ ! -e /tmp/enough ]; do sleep 1; done'"
    job = cluster.run_as("ada", "head", batch).strip()
    eventually(lambda: runs(cluster, job), 30, "the job runs")
    writers = Writers(cluster, "b1", "ada", of_each_kind=3)
    eventually(lambda: all(writers.told().values()), 30, "all write")
    began = time.monotonic()
    with cut(cluster, "b1"):
        cluster.run("head", "scontrol reconfigure")
        while time.monotonic() - began < seconds:
            silent = "*" in shown(cluster, "b1")
            threading.Event().wait(2)
        assert silent, "slurmctld has noticed"
        before = writers.told()
    healed = time.monotonic()
    found: dict[str, float] = {}

    def back() -> bool:
        now = writers.told()
        if all(len(now[name]) > len(before[name]) for name in writers.names):
            found.setdefault("writers", time.monotonic() - healed)
        if shown(cluster, "b1") == "mix":
            found.setdefault("Slurm", time.monotonic() - healed)
        return len(found) == 2

    eventually(back, BACK, f"b1 has work and all write; within the time: {found}")
    print(f"cut off for {seconds} s; back after healing:", {name: f"{after:.0f} s" for name, after in found.items()})
    # The job that was there is there still, and has not begun anew.
    assert (cluster.job(job)["JobState"], cluster.job(job)["Restarts"]) == ("RUNNING", "0")
    cluster.run("b1", "touch /tmp/enough")
    there, told = writers.stop(), writers.told()
    assert there == told, "what was acknowledged, once and in order, and no error"
    # The end of a job that lived through it all is told, and the node is as free as before. Not asked of sinfo, which
    # goes on to say `mix` where slurmctld was reconfigured while the job ran (docs/failures.md).
    ended = time.monotonic()
    assert cluster.end_of(job, BACK) == "COMPLETED"
    eventually(lambda: "State=IDLE" in cluster.run("head", "scontrol show node b1"), BACK, "b1 is idle")
    print(f"its job ended: idle after {time.monotonic() - ended:.0f} s")
    assert cluster.run("head", as_user("ada", "srun -w b1 --immediate=30 hostname")) == "b1\n"
    cluster.run("b1", "rm /tmp/enough")


def test_a_process_that_waits_for_a_share_that_is_away_can_be_killed(cluster: ClusterUnderTest) -> None:
    waiting = "pgrep -u ada -f 'cat /shared/scratch/[.]nothing'"
    with cut(cluster, "b1"):
        # Not in a login, which would wait for the home.
        cluster.run("b1", "setsid runuser -u ada -- cat /shared/scratch/.nothing </dev/null >/dev/null 2>&1 &")
        eventually(lambda: cluster.attempt("b1", waiting).returncode == 0, 10, "cat waits")
        cluster.run("b1", "pkill -KILL -u ada -f 'cat /shared/scratch/[.]nothing'")
        eventually(lambda: cluster.attempt("b1", waiting).returncode == 1, 45, "it is gone")
    eventually(lambda: cluster.attempt("b1", as_user("ada", "ls /shared")).returncode == 0, 30, "the share answers")
    eventually(lambda: shown(cluster, "b1") == "idle", BACK, "b1 is idle")


def test_a_stack_may_call_a_lost_machine_down_sooner_and_its_job_runs_again(cluster: ClusterUnderTest) -> None:
    settings = cluster.config["tailrack:slurm"]["settings"]
    settings["SlurmdTimeout"], bounds = 60, silence(60)
    cluster.up_ok()
    try:
        batch = "sbatch --parsable -p all -w b1 --output=/dev/null --wrap 'sleep 900'"
        job = cluster.run_as("ada", "head", batch).strip()
        # Not asked of sinfo: see above.
        eventually(lambda: runs(cluster, job), 30, "the job runs on b1")
        with cut(cluster, "b1"):
            began = time.monotonic()
            eventually(lambda: shown(cluster, "b1").startswith("down"), bounds.down + SEEN, "b1 is down")
            assert time.monotonic() - began >= bounds.harmless
            print(f"down after {time.monotonic() - began:.0f} s of {bounds}")
            eventually(lambda: "Restarts=1" in cluster.run("head", f"scontrol show job {job}"), 30, "it is requeued")
            cluster.run("head", f"scancel {job}")
        eventually(lambda: shown(cluster, "b1") == "idle", BACK, "b1 is back by itself")
    finally:
        del settings["SlurmdTimeout"]
        cluster.up_ok()
