"""A pod as a compute node: a container without systemd, a TUN device and mounts, beside a head node and a machine.

The tests share one pod and run in the order of this file: jobs, killed daemons, a replaced container, leaving.
"""

import time

import pytest

from tests.lab.cluster import ClusterUnderTest, eventually, patience, recreate_pod

SERVICES = "/usr/local/lib/tailrack/services"
ON_POD = "-p pods -D /tmp"
# What a pod must not have any more when it has left. Each line's command fails where it is still there.
CLEAN = """
! pgrep -r R,S,D -x runsv
! pgrep -r R,S,D -x tailscaled
! pgrep -r R,S,D -x munged
! pgrep -r R,S,D -f '[s]lurmd'
! test -e /etc/munge/munge.key
! test -e /workspace/.tailrack
! test -e /usr/local/lib/tailrack
! test -e /etc/tailrack
! test -e /etc/ssh/tailrack_leave_key
! test -e /etc/ssh/tailrack_host_key
! test -e /shared
! grep tailrack /etc/hosts
! id ada
"""


@pytest.fixture(scope="module")
def cluster(pod_cluster: ClusterUnderTest) -> ClusterUnderTest:
    """A head node and a machine in one site, and a pod in another one."""
    pod_cluster.up_ok()
    return pod_cluster


def srun(cluster: ClusterUnderTest, words: str, limit: float = 60) -> str:
    """Run a step on the pod as ada, and return its output."""
    return cluster.run_as("ada", "head", f"srun {ON_POD} {words}", limit).strip()


def is_idle(cluster: ClusterUnderTest) -> bool:
    return cluster.run("head", "sinfo -h -N -p pods -o '%T'").strip() == "idle"


def wait_for_pod(cluster: ClusterUnderTest) -> None:
    """Wait until the pod's daemons are back, and Slurm gives it jobs."""
    answer = "munge -n | unmunge && tailscale wait --timeout 1s"
    eventually(lambda: cluster.attempt("p1", answer).returncode == 0 and is_idle(cluster), 60, "the pod takes jobs")


def pid_of(cluster: ClusterUnderTest, service: str) -> str:
    """Return the process of a service on the pod; empty if it does not run."""
    status = cluster.attempt("p1", f"sv status {SERVICES}/{service}").stdout
    return status.partition("(pid ")[2].partition(")")[0] if status.startswith("run:") else ""


def test_a_job_runs_on_the_head_node_on_a_machine_and_on_a_pod(cluster: ClusterUnderTest) -> None:
    assert sorted(cluster.run_as("ada", "head", "srun -p rack -N2 hostname").split()) == ["head", "n1"]
    assert srun(cluster, "printenv SLURMD_NODENAME") == "p1"
    # For the tests of a new container and of leaving.
    srun(cluster, "sh -c 'echo precious >/shared/home/ada/kept'")


def test_a_second_up_changes_nothing(cluster: ClusterUnderTest) -> None:
    cluster.up_ok()
    assert cluster.touched() == set()


def test_output_input_and_the_exit_status_of_a_step_cross_the_tailnet(cluster: ClusterUnderTest) -> None:
    assert srun(cluster, "sh -c 'head -c 1000000 /dev/zero' | wc -c") == "1000000"
    assert cluster.run_as("ada", "head", f"echo hello | srun {ON_POD} cat").strip() == "hello"
    assert cluster.run_as("ada", "head", f"srun {ON_POD} sh -c 'exit 7'; echo $?").strip().endswith("7")
    shown = cluster.run_as("ada", "head", f"script -qc \"srun {ON_POD} --pty sh -c 'tty; echo ended'\" /dev/null")
    assert "/dev/pts/" in shown
    assert "ended" in shown


def test_an_allocation_gives_steps_on_the_pod_and_a_job_there_uses_slurms_commands(cluster: ClusterUnderTest) -> None:
    steps = f"salloc -Q {ON_POD} sh -c 'srun printenv SLURMD_NODENAME; srun id -un'"
    assert cluster.run_as("ada", "head", f"cd /tmp; {steps}").split() == ["p1", "ada"]
    assert srun(cluster, "sh -c 'squeue -h -j $SLURM_JOB_ID -o %T'") == "RUNNING"


def test_batch_jobs_an_array_and_a_broadcast_file_end_on_the_pod(cluster: ClusterUnderTest) -> None:
    submit = f"sbatch --parsable {ON_POD} -o /tmp/out-%a -n1 --mem=100 --array=1-20 --wrap 'echo $SLURM_ARRAY_TASK_ID'"
    job = cluster.run_as("ada", "head", f"cd /tmp; {submit}").strip()
    ended = f"sacct -n -X -j {job} -o State | sort | uniq -c"
    eventually(lambda: cluster.run("head", ended).split() == ["20", "COMPLETED"], 90, "20 tasks end")
    assert cluster.run("p1", "cat /tmp/out-* | sort -n | tail -n 1").strip() == "20"
    send = f"salloc -Q {ON_POD} sh -c 'sbcast /tmp/sent /tmp/received && srun sha256sum /tmp/received'"
    seen = cluster.run_as("ada", "head", f"cd /tmp; head -c 3000000 /dev/urandom >sent; sha256sum sent; {send}")
    assert len({line.split()[0] for line in seen.splitlines()}) == 1


def test_a_job_with_files_on_the_share_is_refused_unless_it_brings_them(cluster: ClusterUnderTest) -> None:
    job = "cd ~/run && sbatch --parsable -p pods -o out {} --wrap 'cat in; hostname >new'"
    cluster.run_as("ada", "head", "mkdir ~/run && echo brought >~/run/in")
    assert "add --comment=stage" in cluster.run_as("ada", "head", f"{job.format('')} 2>&1 || :")
    number = cluster.run_as("ada", "head", job.format("--comment=stage")).strip()
    state = f"scontrol show job {number} | grep -o 'JobState=[A-Z]*'"
    eventually(lambda: cluster.run("head", state).strip() == "JobState=COMPLETED", 60, "it ends, with its results back")
    assert cluster.run_as("ada", "head", "cat ~/run/out") == "brought\n"
    assert cluster.run_as("ada", "head", "stat -c %U ~/run/new") == "ada\n"


def test_a_cancelled_job_ends_on_the_pod(cluster: ClusterUnderTest) -> None:
    job = cluster.run_as("ada", "head", f"cd /tmp; sbatch --parsable {ON_POD} -o /tmp/o --wrap 'sleep 4321'").strip()
    eventually(lambda: cluster.attempt("p1", "pgrep -f '[s]leep 4321'").returncode == 0, 60, "it runs")
    cluster.run_as("ada", "head", f"scancel {job}")
    eventually(lambda: cluster.attempt("p1", "pgrep -f '[s]leep 4321'").returncode == 1, 60, "it has ended")
    eventually(lambda: is_idle(cluster), 60, "the pod is free")


def test_leftovers_on_a_pod_end_with_the_users_last_job(cluster: ClusterUnderTest) -> None:
    srun(cluster, "sh -c 'setsid sleep 8765 >/dev/null 2>&1 & sleep 1'")
    eventually(lambda: cluster.attempt("p1", "pgrep -f '[s]leep 8765'").returncode == 1, 60, "it has ended")
    eventually(lambda: is_idle(cluster), 60, "the pod takes jobs")


@pytest.mark.proof
@pytest.mark.parametrize("service", ["munge", "tailscaled", "sshd", "slurmd"])
def test_a_killed_daemon_is_back_within_two_seconds(cluster: ClusterUnderTest, service: str) -> None:
    # Killed during a job's epilog, slurmd would hear of the job's end again only minutes later.
    eventually(lambda: is_idle(cluster), 60, "no job is left")
    before = pid_of(cluster, service)
    cluster.run("p1", f"kill -9 {before}")
    began = time.monotonic()
    eventually(lambda: pid_of(cluster, service) not in ("", before), 2, f"{service} runs again")
    assert time.monotonic() - began < 2 * patience()
    wait_for_pod(cluster)
    assert srun(cluster, "printenv SLURMD_NODENAME") == "p1"


@pytest.mark.proof
def test_services_go_on_below_a_new_supervisor_if_it_is_killed(cluster: ClusterUnderTest) -> None:
    eventually(lambda: is_idle(cluster), 60, "no job is left")
    supervisor = f"pgrep -f '^runsvdir -P {SERVICES}'"
    before = cluster.run("p1", f"{supervisor}; pkill -9 -x tini")
    eventually(lambda: (now := cluster.attempt("p1", supervisor).stdout) != before and now.count("\n") == 1, 60, "one")
    # Those of the old one take a moment to end, and then stay as zombies: this pod's first process collects none.
    parents = "for pid in $(pgrep -r R,S,D -x runsv); do ps -o comm= -p $(ps -o ppid= -p $pid); done | sort -u"
    eventually(lambda: cluster.attempt("p1", parents).stdout.strip() == "runsvdir", 60, "all are its own")
    wait_for_pod(cluster)


def test_the_head_node_asks_a_pod_and_names_its_missing_parts(cluster: ClusterUnderTest) -> None:
    assert "note for p1: a pod does not confine jobs" in cluster.run("head", "tailrack nodes")
    digest = cluster.run("head", "sha256sum /etc/munge/munge.key").split()[0]
    assert "MUNGE:" in cluster.run("head", f"tailrack-ask p1 munge-switch {digest}")


@pytest.mark.proof
def test_a_replaced_container_comes_back_by_the_start_command_and_its_jobs_run_again(cluster: ClusterUnderTest) -> None:
    srun(cluster, "sh -c 'echo precious >/shared/home/ada/kept'")
    address = cluster.run("p1", "tailscale ip -4")
    submit = f"sbatch --parsable {ON_POD} -o /tmp/again --wrap 'sleep 60; echo $SLURM_RESTART_COUNT'"
    job = cluster.run_as("ada", "head", f"cd /tmp; {submit}").strip()
    eventually(lambda: cluster.run("head", f"squeue -h -j {job} -o %T").strip() == "RUNNING", 60, "it runs")
    again = recreate_pod(cluster.lab, "p1", "pods")
    shown = f"scontrol show job {job} | grep -o 'Restarts=[0-9]*\\|JobState=[A-Z]*' | sort | xargs"
    eventually(
        lambda: cluster.run("head", shown).strip() == "JobState=PENDING Restarts=1", 120, "the pod is back, without it"
    )
    # Slurm lets it wait for two minutes.
    cluster.run("head", f"scontrol update jobid={job} starttime=now")
    eventually(lambda: cluster.run("head", shown).strip() == "JobState=RUNNING Restarts=1", 60, "it runs again")
    cluster.run_as("ada", "head", f"scancel {job}")
    assert cluster.run("p1", "tailscale ip -4") == address
    assert cluster.run("p1", "su ada -c 'cat /shared/home/ada/kept'").strip() == "precious"
    assert "slurmd started" in cluster.run("p1", "cat /var/log/tailrack/slurmd/current")
    # Its port and its host key are others, as `make trust` finds them.
    (pods,) = (site for site in cluster.config["tailrack:sites"] if site["name"] == "pods")
    pods["hosts"] = [again]
    cluster.up_ok()
    eventually(lambda: is_idle(cluster), 60, "the pod takes jobs")
    assert srun(cluster, "printenv SLURMD_NODENAME") == "p1"


def test_a_pod_that_is_removed_from_the_config_leaves_and_is_clean(cluster: ClusterUnderTest) -> None:
    rules = [rule for rule in CLEAN.split("\n") if rule]

    def broken() -> list[str]:
        return [rule for rule in rules if cluster.attempt("p1", rule).returncode != 0]

    assert broken() == rules
    cluster.config["tailrack:sites"] = [site for site in cluster.config["tailrack:sites"] if site["name"] != "pods"]
    cluster.up_ok()
    eventually(lambda: broken() == [], 60, "the pod is clean")
    assert cluster.run("p1", "cat /workspace/shared/home/ada/kept").strip() == "precious"
    assert "p1" not in cluster.run("head", "tailscale status --json | jq -r '.Peer // {} | .[].HostName'")
    assert "p1" not in cluster.run("head", "sinfo -h -N -o '%N'")
    assert cluster.run_as("ada", "head", "srun -p rack -N2 hostname").split()
