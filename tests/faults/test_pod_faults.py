"""Pods that stop and start, lose a daemon, or have a full volume: jobs run on, or run again, and users see why.

The tests share two pods and run in the order of this file.
"""

import subprocess
from collections.abc import Iterator

import pytest

from lab.identity import LABEL
from lab.pod import volume
from tests.lab.cluster import ClusterUnderTest, MakeCluster, as_user, eventually, own_machine, start_pod, stop_pod
from tests.slurm_silence import silence

SERVICES = "/usr/local/lib/tailrack/services"
HOME = "/shared/home/ada"
# A batch script with a step: both end when its file is there.
WAITS = "srun sh -c 'until [ -e /tmp/go-$SLURM_JOB_ID ]; do sleep 0.2; done; echo from the step'; echo from the script"
SLURMD_TIMEOUT = 30
VOLUME_MB = 256


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A head node, a pod p1, and a pod p2 with a small volume."""
    made = make_cluster("podfaults")
    small = ["--opt", "type=tmpfs", "--opt", "device=tmpfs", "--opt", f"o=size={VOLUME_MB}m"]
    create = ["docker", "volume", "create", "--label", f"{LABEL}={made.lab}", *small, volume(made.container("p2"))]
    subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
    made.use_machines(
        {"name": "rack", "hosts": [own_machine(made.lab, "head")], "fabric": "tailnet"},
        made.pods("p1", "p2"),
        computes=True,
    )
    made.config["tailrack:slurm"].setdefault("settings", {})["SlurmdTimeout"] = SLURMD_TIMEOUT
    made.up_ok()
    return made


def state_of(cluster: ClusterUnderTest, pod: str) -> str:
    return cluster.run("head", f"sinfo -h -N -n {pod} -p pods -o %T").strip()


def wait_until_idle(cluster: ClusterUnderTest, pod: str = "p1", seconds: float = 60) -> None:
    eventually(lambda: state_of(cluster, pod) == "idle", seconds, f"{pod} is idle")


def submit(cluster: ClusterUnderTest) -> str:
    """Submit a job that waits on p1, and return its number when it runs."""
    cluster.run("head", f"cat >/tmp/waits <<'END'\n#!/bin/sh\n{WAITS}\nEND")
    job = cluster.run_as("ada", "head", "sbatch --parsable -w p1 -p pods -D /tmp -o /tmp/out-%j /tmp/waits").strip()
    eventually(lambda: runs(cluster, job), 30, "the job's step runs")
    return job


def shown(cluster: ClusterUnderTest, job: str) -> tuple[str, int]:
    """Return a job's state, and how often it was started again."""
    fields = cluster.job(job)
    return fields["JobState"], int(fields["Restarts"])


def runs(cluster: ClusterUnderTest, job: str, restarts: int = 0) -> bool:
    steps = cluster.attempt("head", f"squeue -h -s -j {job} -o %i").stdout
    return shown(cluster, job) == ("RUNNING", restarts) and f"{job}.0" in steps


def let_end(cluster: ClusterUnderTest, job: str) -> str:
    """Let a job end, wait for it, and return its output."""
    cluster.run("p1", f"touch /tmp/go-{job}")
    eventually(lambda: shown(cluster, job)[0] == "COMPLETED", 60, "the job has ended")
    return cluster.run("p1", f"cat /tmp/out-{job}")


def begin_srun(cluster: ClusterUnderTest, options: str) -> None:
    """Start an srun of ada on the head node, and wait until its step runs."""
    words = f"srun {options} -D /tmp sh -c 'echo begun; sleep 1000'"
    command = f"{words} >~/live.out 2>~/live.err; echo $? >~/live.status"
    cluster.run("head", f"rm -f {HOME}/live.*; setsid {as_user('ada', command)} >/dev/null 2>&1 &")
    eventually(lambda: "begun" in cluster.attempt("head", f"cat {HOME}/live.out").stdout, 30, "srun runs")


def wait_for_failed_srun(cluster: ClusterUnderTest) -> None:
    eventually(lambda: cluster.attempt("head", f"cat {HOME}/live.status").stdout != "", 60, "srun has ended")
    assert cluster.run("head", f"cat {HOME}/live.status").strip() != "0"
    assert "Node failure on p1" in cluster.run("head", f"cat {HOME}/live.err")


def test_a_job_that_had_just_started_when_its_pod_stopped_is_requeued_at_once(cluster: ClusterUnderTest) -> None:
    job = submit(cluster)
    stop_pod(cluster.lab, "p1", "pods")
    start_pod(cluster.lab, "p1", "pods")
    eventually(lambda: shown(cluster, job) == ("PENDING", 1), 40, "the pod is back, and the job is requeued")
    assert "node p1 stopped and started again" in cluster.why(job)
    wait_until_idle(cluster)
    # Slurm lets it wait for two minutes.
    cluster.run("head", f"scontrol update jobid={job} starttime=now")
    eventually(lambda: runs(cluster, job, restarts=1), 60, "the job runs again")
    assert let_end(cluster, job).splitlines()[-2:] == ["from the step", "from the script"]
    wait_until_idle(cluster)


def test_an_srun_ends_with_an_error_when_its_pod_stopped_and_started(cluster: ClusterUnderTest) -> None:
    begin_srun(cluster, "-w p1 -p pods")
    stop_pod(cluster.lab, "p1", "pods")
    start_pod(cluster.lab, "p1", "pods")
    wait_for_failed_srun(cluster)
    wait_until_idle(cluster)


@pytest.mark.parametrize("restart", ["kill -9 $({process})", "sv restart {services}/slurmd"])
def test_a_job_runs_on_when_slurmd_alone_restarts(cluster: ClusterUnderTest, restart: str) -> None:
    job = submit(cluster)
    process = f"cat {SERVICES}/slurmd/supervise/pid"
    before = cluster.run("p1", process)
    cluster.run("p1", restart.format(process=process, services=SERVICES))
    eventually(lambda: cluster.attempt("p1", process).stdout not in ("", before), 10, "slurmd is back")
    eventually(lambda: cluster.attempt("p1", "exec 3<>/dev/tcp/127.0.0.1/6818").returncode == 0, 20, "slurmd listens")
    assert shown(cluster, job) == ("RUNNING", 0)
    assert let_end(cluster, job) == "from the step\nfrom the script\n"
    assert shown(cluster, job) == ("COMPLETED", 0)
    wait_until_idle(cluster)


def test_a_pod_that_is_gone_for_long_is_down_with_a_word_and_back_by_itself(cluster: ClusterUnderTest) -> None:
    job = submit(cluster)
    begin_srun(cluster, f"--overlap --jobid={job}")
    stop_pod(cluster.lab, "p1", "pods")
    eventually(lambda: shown(cluster, job)[1] == 1, silence(SLURMD_TIMEOUT).down + 10, "p1 is down, the job requeued")
    nodes = cluster.run_as("ada", "head", "tailrack nodes p1")
    assert "ot responding" in nodes
    assert "start p1 at its provider" in nodes
    # The accounting knows it a moment later.
    eventually(lambda: "its node p1 was lost" in cluster.why(job), 30, "the lost node is named")
    wait_for_failed_srun(cluster)
    start_pod(cluster.lab, "p1", "pods")
    wait_until_idle(cluster)
    # After the pause of two minutes: until then, a last order to end the job could reach its next run on the same node.
    eventually(lambda: runs(cluster, job, restarts=1), 150, "the job runs again")
    assert let_end(cluster, job).splitlines()[-2:] == ["from the step", "from the script"]
    wait_until_idle(cluster)


@pytest.fixture
def full(cluster: ClusterUnderTest) -> Iterator[None]:
    """Fill p2's volume."""
    cluster.run("p2", "! dd if=/dev/zero of=/workspace/full bs=64k status=none")
    assert cluster.run("p2", "df --output=avail /workspace | tail -n 1").strip() == "0"
    yield
    cluster.run("p2", "rm -f /workspace/full")
    wait_until_idle(cluster, "p2", 150)


def test_a_pod_with_a_full_volume_gets_no_jobs_until_it_has_room(cluster: ClusterUnderTest, full: None) -> None:
    cluster.run("p2", f"for service in {SERVICES}/*; do kill -9 $(cat $service/supervise/pid); done")
    connected = "munge -n | unmunge && tailscale wait --timeout 1s"
    eventually(lambda: cluster.attempt("p2", connected).returncode == 0, 30, "the programs are back")
    reason = "sinfo -h -n p2 -p pods -o %E"
    eventually(lambda: "/workspace is full" in cluster.run("head", reason), 150, "the health check drains it")
    cluster.run("p2", "rm /workspace/full")
    wait_until_idle(cluster, "p2", 150)
    assert cluster.run_as("ada", "head", "srun -w p2 -p pods -D /tmp echo works") == "works\n"
    wait_until_idle(cluster, "p2")


def test_a_job_without_room_for_its_folder_on_a_pod_ends_with_a_message(cluster: ClusterUnderTest, full: None) -> None:
    # Some room: the health check finds no error.
    cluster.run("p2", "truncate -s -25M /workspace/full")
    wait_until_idle(cluster, "p2", 150)
    cluster.run_as("ada", "head", "mkdir -p ~/run && head -c 60000000 /dev/urandom >~/run/in")
    options = "-w p2 -p pods --comment=stage"
    job = cluster.run_as("ada", "head", f"cd ~/run && sbatch --parsable {options} --wrap true").strip()
    eventually(lambda: shown(cluster, job)[0] == "CANCELLED", 90, "the job has ended")
    assert "could not be brought to p2: the pod has no room for it" in cluster.why(job)


def test_up_names_a_full_volume_and_works_when_it_has_room(cluster: ClusterUnderTest, full: None) -> None:
    cluster.config["tailrack:cluster"]["repair"] = {"p2": "a full volume"}
    summary = cluster.up()
    (failure,) = summary.failures
    assert "the volume of p2 at /workspace is full (0 MB are free)" in failure.message
    assert "next: remove files there ('du -xm /workspace" in failure.message
    cluster.run("p2", "truncate -s 0 /workspace/full")
    cluster.up_ok()
    wait_until_idle(cluster, "p2", 150)
    assert cluster.run_as("ada", "head", "srun -w p2 -p pods -D /tmp echo works") == "works\n"


def test_a_pod_recovers_within_minutes_after_slurmd_dies_in_an_epilog(cluster: ClusterUnderTest) -> None:
    wait_until_idle(cluster)
    slow = "/usr/local/lib/tailrack/epilog.d/99-slow"
    cluster.run("p1", f"printf '#!/bin/sh\\nsleep 5\\n' >{slow}; chmod 755 {slow}")
    cluster.run_as("ada", "head", "srun -w p1 -p pods -D /tmp true")
    eventually(lambda: cluster.attempt("p1", "pgrep -f epilog.d/[9]9-slow").returncode == 0, 20, "the epilog runs")
    cluster.run("p1", f"kill -9 $(cat {SERVICES}/slurmd/supervise/pid)")
    # slurmctld repeats its order after KillWait and twice MessageTimeout, when it looks at jobs, every minute.
    wait_until_idle(cluster, "p1", 180)
