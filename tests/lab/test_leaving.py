"""Machines of one's own that shut down, and that a cluster leaves: jobs go back to the queue, all is as it was.

The tests share a head node and a compute node and run in the order of this file.
"""

import re
import subprocess
import time
from dataclasses import dataclass

import pytest

from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually, own_machine
from tests.lab.machine_state import differences, state_of

# Seconds for a machine to be off: a provider that takes a machine back gives it 30.
OFF = 30

# What may differ afterwards, and why.
ALLOWED = [
    # People's files; logs of what was done; the login's folder of scripts, and what sudo notes there.
    r"path: /export",
    r"/var/log/|/home/admin/\.(tailrack|sudo_as_admin)",
    # What jobs have used, which the machine says too.
    r"path: /var/lib/slurm/accounting\b",
    # Packages stay. The machine says which (test below); of n1 it is one.
    r"nftables|/etc/ld\.so\.cache",
    # What the system's own daemons and tools keep for themselves.
    r"/var/lib/(tailscale|munge|nfs|apt|dpkg|private|systemd)\b",
    r"/etc/(passwd|group|shadow|gshadow|subuid|subgid)-",
    # Docker's resolver, on another port after a restart; what runs at the first boot alone.
    r"listens: \S+ 127\.0\.0\.11:",
    r"unit: (ldconfig|systemd-\S+)\.service active",
    # Whoever looks, and what comes and goes by itself.
    r"process: \S+ (ps|awk|bash|sh|timeout|find|systemctl|sleep|sshd\S*|\(sd-pam\)|systemd|agetty|kworker\S*)$",
    # Docker's own entry for the container, which a name that the cluster gives takes the place of.
    r"file: \S+ /etc/hosts$",
    # Closed stays closed.
    r"path: /var/lib/slurm/slurmctld d ",
    # Points in the order of a boot that somebody has asked for since.
    r"unit: network-(online|pre)\.target",
]


@dataclass(frozen=True)
class Machines:
    """The two machines as a cluster, and how they were before it."""

    cluster: ClusterUnderTest
    before: dict[str, set[str]]


@pytest.fixture(scope="module")
def machines(make_cluster: MakeCluster) -> Machines:
    made = make_cluster("l1")
    head, node = own_machine(made.lab, "head"), own_machine(made.lab, "n1")
    # Hardened by its owner: root is not among those who may log in.
    made.run("n1", "echo 'AllowUsers admin' >/etc/ssh/sshd_config.d/site.conf; systemctl reload ssh")
    # The lab's machines have all packages: of this one the cluster brings one itself.
    made.run("n1", "dpkg --purge nftables")
    before = {name: state_of(made, name) for name in ("head", "n1")}
    made.use_machines({"name": "rack", "fabric": "tailnet", "hosts": [head, node]})
    made.up_ok()
    return Machines(made, before)


@pytest.mark.proof
def test_a_machine_that_is_shut_down_in_order_gives_its_jobs_back_and_is_off_in_time(machines: Machines) -> None:
    cluster = machines.cluster
    # As stubborn as a job can be: it takes no notice of being asked to end.
    stubborn = "trap '' TERM; while :; do sleep 1; done"
    job = cluster.submit(f'--wrap "{stubborn}"')
    eventually(lambda: cluster.job(job)["JobState"] == "RUNNING", 60, "the job runs")
    began = time.monotonic()
    subprocess.run(["docker", "stop", "-t", "150", cluster.container("n1")], check=True, capture_output=True)
    took = time.monotonic() - began
    state = (cluster.job(job)["JobState"], cluster.job(job)["Restarts"])
    # Not asked of sinfo, which may say `mix` so soon after a reconfiguration (docs/failures.md).
    said = cluster.run("head", "scontrol show node n1")
    subprocess.run(["docker", "start", cluster.container("n1")], check=True, capture_output=True)
    assert state == ("PENDING", "1")
    assert re.search(r"State=DOWN\b", said), said
    assert "Reason=tailrack: shuts down" in said
    assert took < OFF
    # It is back by itself, and does the job. (Slurm waits two minutes before it runs a job again.)
    eventually(lambda: cluster.run("head", "sinfo -h -n n1 -p all -o %T").strip() == "idle", 90, "n1 is back")
    cluster.run("head", f"scontrol update jobid={job} starttime=now")
    eventually(lambda: cluster.job(job)["JobState"] == "RUNNING", 60, "the job runs again")
    cluster.run("head", f"scancel -s KILL {job}; scancel {job}")
    eventually(lambda: cluster.run("head", "squeue -h") == "", 60, "the job is gone")


def test_a_daemon_that_is_restarted_on_a_running_machine_gives_no_job_back(machines: Machines) -> None:
    cluster = machines.cluster
    job = cluster.submit("--wrap 'tail -f /dev/null'")
    eventually(lambda: cluster.job(job)["JobState"] == "RUNNING", 60, "the job runs")
    cluster.run("n1", "systemctl restart slurmd tailrack-shutdown")
    eventually(lambda: "State=MIXED+DYNAMIC" in cluster.run("head", "scontrol show node n1"), 60, "n1 works")
    assert (cluster.job(job)["JobState"], cluster.job(job)["Restarts"]) == ("RUNNING", "0")
    cluster.run("head", f"scancel {job}")


def test_down_leaves_both_machines_as_they_were(machines: Machines) -> None:
    cluster = machines.cluster
    cluster.run_as("ada", "n1", "echo precious >results")
    summary = cluster.deployment().destroy()
    assert summary.ok, summary.failures
    left: dict[str, list[str]] = {}

    def as_before() -> bool:
        left.update({name: differences(was, state_of(cluster, name), ALLOWED) for name, was in machines.before.items()})
        return not any(left.values())

    try:
        eventually(as_before, 40, "both are as they were")
    except AssertionError:
        pytest.fail("\n".join(f"{name}: {line}" for name, lines in left.items() for line in lines))
    assert cluster.run("head", "cat /export/shared/home/ada/results").strip() == "precious"
    assert "/var/lib/slurm/accounting" in cluster.run("head", "cat /var/log/tailrack/left")
    assert "apt-get autoremove --purge" in cluster.run("n1", "grep -w nftables /var/log/tailrack/left")
