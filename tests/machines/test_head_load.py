"""A user who uses up memory or processes of the head node does not stop the jobs of others: the kernel's cgroups."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.machines.cluster import MachineCluster
from tests.machines.image import KEY
from tests.machines.machines import SSH

pytestmark = pytest.mark.short

LIMITS = {"memory_percent": 20, "cpu_percent": 60, "tasks": 150}
SLICE = "user-6001.slice"
DAEMONS = ("slurmctld", "munge", "tailscaled")

# It takes memory until the kernel ends it; at most 1.2 GB, should nothing end it.
HOG = "[bytearray(10**7) for _ in range(120)]"
# It forks until it may not; then each child keeps the CPU busy for a number of seconds.
BOMB = """
import os, sys, time
end, children = time.monotonic() + float(sys.argv[1]), 0
waiting, begin = os.pipe()
try:
    while children < 2000:
        if os.fork() == 0:
            os.close(begin)
            os.read(waiting, 1)
            while time.monotonic() < end and not os.path.exists("enough"):
                pass
            os._exit(0)
        children += 1
except BlockingIOError:
    print("refused after", children, flush=True)
os.close(begin)
while children:
    os.wait()
    children -= 1
"""


def log_in(cluster: MachineCluster, command: str) -> list[str]:
    """Return the command line of ada's log-in at the head node's sshd: root's `su` would stay in root's slice."""
    address = cluster.machines["head"].address
    return ["ssh", "-o", "ControlPath=none", *SSH[1:], f"ada@{address}", command]


def as_ada(cluster: MachineCluster, command: str, limit: float = 60) -> subprocess.CompletedProcess[str]:
    """Log in as ada, run a command, and return how it ended."""
    head = cluster.machines["head"]
    return subprocess.run(
        log_in(cluster, command), cwd=head.place, capture_output=True, text=True, timeout=limit * head.slowness
    )


@contextmanager
def logged_in(cluster: MachineCluster, command: str = "cat") -> Iterator[subprocess.Popen[str]]:
    """Have ada logged in with a command that reads its stdin, which ends with the block."""
    place = cluster.machines["head"].place
    with subprocess.Popen(
        log_in(cluster, command), cwd=place, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            if process.stdin:
                process.stdin.close()


def shown(cluster: MachineCluster, unit: str, *names: str) -> list[str]:
    """Return properties of a unit on the head node."""
    return [cluster.run("head", f"systemctl show -P {name} {unit}").strip() for name in names]


def daemons(cluster: MachineCluster) -> list[str]:
    """Return the processes of the cluster's daemons: others after a restart."""
    return [pid for daemon in DAEMONS for pid in shown(cluster, daemon, "MainPID")]


def bobs_jobs_run(cluster: MachineCluster) -> None:
    """Have jobs of bob's start and end, each within a bounded time."""
    for _ in range(2):
        assert cluster.run_as("bob", "head", "srun -w n1 -n1 --mem=100 hostname", 40) == "n1\n"
    cluster.run_as("bob", "head", "sbatch -Q --wait -w n1 -n1 --mem=100 --output=/dev/null --wrap true", 60)


@pytest.fixture(scope="module", autouse=True)
def limits(cluster: MachineCluster) -> Iterator[None]:
    """Low limits, and ada's key in her home."""
    cluster.config["tailrack:head"]["user_limits"] = LIMITS
    cluster.up_ok()
    cluster.run_as(
        "ada", "head", f"mkdir -p .ssh && echo '{KEY.with_suffix('.pub').read_text().strip()}' >.ssh/authorized_keys"
    )
    yield
    cluster.config["tailrack:head"].pop("user_limits")
    cluster.up_ok()


def memory_of(cluster: MachineCluster) -> int:
    """Return the head node's memory in bytes."""
    return int(cluster.run("head", "awk '/^MemTotal:/ { print $2 }' /proc/meminfo")) * 1024


def test_a_log_in_has_the_limits_of_the_config_and_root_has_none(cluster: MachineCluster) -> None:
    with logged_in(cluster):
        cluster.eventually(lambda: shown(cluster, SLICE, "ActiveState") == ["active"], 30, "ada is logged in")
        most, swap, tasks, quota = shown(cluster, SLICE, "MemoryMax", "MemorySwapMax", "TasksMax", "CPUQuotaPerSecUSec")
        assert (swap, tasks, quota) == ("0", "150", "600ms")
        assert 0.18 < int(most) / memory_of(cluster) < 0.22
        kernel = "cat /sys/fs/cgroup/user.slice/user-6001.slice/{memory.max,pids.max,cpu.max}"
        assert cluster.run("head", kernel).split() == [most, "150", "60000", "100000"]
    for slice_name in ("user-0.slice", "system.slice"):
        assert shown(cluster, slice_name, "MemoryMax", "CPUQuotaPerSecUSec") == ["infinity"] * 2
    assert shown(cluster, "user-0.slice", "CPUWeight") == ["1000"]
    # tailrack's own login builds and installs packages.
    uid = cluster.run("head", "id -u admin").strip()
    assert cluster.attempt("head", f"ls /etc/systemd/system/user-{uid}.slice.d").stdout == "tailrack.conf\n"


def test_daemons_are_the_last_that_the_kernel_ends_and_users_processes_are_not(cluster: MachineCluster) -> None:
    for pid in daemons(cluster):
        assert cluster.run("head", f"cat /proc/{pid}/oom_score_adj") == "-900\n"
    assert as_ada(cluster, "cat /proc/self/oom_score_adj").stdout == "0\n"
    for group in ("system.slice", "system.slice/slurmctld.service", "user.slice", "user.slice/user-0.slice"):
        assert int(cluster.run("head", f"cat /sys/fs/cgroup/{group}/memory.min")) > 2**24, group


def test_a_process_that_takes_too_much_memory_is_ended_alone(cluster: MachineCluster) -> None:
    before = daemons(cluster)
    with logged_in(cluster) as other:
        ended = as_ada(cluster, f"python3 -c '{HOG}'; echo $?; cat /proc/self/cgroup")
        status, cgroup = ended.stdout.split()
        assert status == "137"
        assert f"/{SLICE}/" in cgroup
        assert other.poll() is None
        bobs_jobs_run(cluster)
    kernel = cluster.run("head", "journalctl -k -b --no-pager | grep oom-kill: | tail -n 1")
    assert "CONSTRAINT_MEMCG" in kernel
    assert SLICE in kernel
    assert "task=python3" in kernel
    assert daemons(cluster) == before


def test_a_fork_bomb_ends_at_its_limit_and_jobs_of_others_start_and_end(cluster: MachineCluster) -> None:
    before = daemons(cluster)
    cluster.run_as("ada", "head", f"rm -f enough; cat >bomb.py <<'END'\n{BOMB}END")
    with logged_in(cluster, f"python3 bomb.py {300 * cluster.machines['head'].slowness}") as bomb:
        try:
            assert bomb.stdout
            line = bomb.stdout.readline().split()
            assert line[:2] == ["refused", "after"]
            assert 50 < int(line[2]) <= LIMITS["tasks"]
            bobs_jobs_run(cluster)
            # root still has processes and a log-in.
            assert cluster.run("head", "whoami") == "root\n"
            assert bomb.poll() is None, "the bomb went on all the time"
            # As day-2.md says.
            cluster.run("head", "loginctl terminate-user ada")
            cluster.eventually(
                lambda: cluster.attempt("head", "pgrep -u ada").stdout == "", 30, "ada's processes ended"
            )
        finally:
            cluster.run_as("ada", "head", "touch enough")
    assert daemons(cluster) == before


def test_a_changed_limit_applies_at_once_to_logged_in_users(cluster: MachineCluster) -> None:
    names = ("TasksMax", "CPUQuotaPerSecUSec", "MemoryMax")
    kernel = "cat /sys/fs/cgroup/user.slice/user-6001.slice/{pids.max,cpu.max,memory.max}"
    with logged_in(cluster):
        cluster.eventually(lambda: shown(cluster, SLICE, "ActiveState") == ["active"], 30, "ada is logged in")
        cluster.config["tailrack:head"]["user_limits"] = {**LIMITS, "tasks": 333, "cpu_percent": 100}
        cluster.up_ok()
        assert shown(cluster, SLICE, *names)[:2] == ["333", "infinity"]
        assert cluster.run("head", kernel).split()[:2] == ["333", "max"]
        cluster.config["tailrack:head"]["user_limits"] = {"enabled": False}
        cluster.up_ok()
        assert shown(cluster, SLICE, *names)[1:] == ["infinity"] * 2
        assert cluster.run("head", kernel).split()[1::2] == ["max", "max"]
