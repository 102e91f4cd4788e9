"""Operate a cluster of pods alone, and a pool of pods in it: new keys, new containers, leaving, a cluster that is gone.

The tests share one cluster and run in the order of this file.
"""

import shlex
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.pulumi.find_engine import Found
from cli.pulumi.workspace import PROJECT
from tests.lab.cluster import SMALL_MEASUREMENT, ClusterUnderTest, MakeCluster, eventually, own_machine, recreate_pod
from tests.lab.pool_under_test import PoolUnderTest
from tests.lab.sealer import sealer_of

KEY = "/etc/munge/munge.key"
SAVED_KEY = f"/workspace/.tailrack/saved{KEY}"
FOLDERS = "members slurm/nodes slurm/pools"
# The folders may be gone too; ls fails then.
LEFT = f"cd /var/lib/tailrack; ls {FOLDERS} /etc/exports.d 2>&1 || true"


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A head node that runs no jobs, and one pod, whose host key is in a file of the operator."""
    made = make_cluster("podstack")
    made.use_machines(
        {"name": "rack", "hosts": [own_machine(made.lab, "head")]},
        made.pods("p1", known_hosts_file=str(made.folder / "known_hosts")),
    )
    made.config["tailrack:validation"] = SMALL_MEASUREMENT
    made.up_ok()
    return made


@pytest.fixture(scope="module")
def pool(cluster: ClusterUnderTest, found: Found, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolUnderTest]:
    """A pool of one pod, up."""
    site = {"name": "more", "kind": "hosts", "pods": True, "accept_pod_risk": True}
    site["hosts"] = [own_machine(cluster.lab, "q1", like="pod", site="more")]
    config = {"tailrack:sites": [site], "tailrack:idle_limit_minutes": 5, "tailrack:validation": SMALL_MEASUREMENT}
    made = PoolUnderTest(cluster, "q", tmp_path_factory.mktemp("q"), found, config)
    made.deployment().workspace.forget()
    seal(made)
    with made.while_up() as up:
        yield up


def seal(pool: PoolUnderTest) -> None:
    """Write the auth key of the pool's machines into its config, after a `down` again: it removes the salt."""
    pool.config.pop("tailrack:tailnet", None)
    _, sealer = sealer_of(pool)
    pool.config["tailrack:tailnet"] = {"auth_key": {"secure": sealer.seal("any-key")}}


def make(stack: ClusterUnderTest, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run a Makefile target; with stdin, on a terminal where a person types it."""
    command = stack.driver(*words)
    if stdin is not None:
        command = ["script", "-qec", shlex.join(command), "/dev/null"]
    return subprocess.run(
        command, cwd=PROJECT, input=stdin, stdin=None if stdin is not None else subprocess.DEVNULL,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def made_well(stack: ClusterUnderTest, *words: str, stdin: str | None = None) -> str:
    """Run a Makefile target, which must succeed, and return its output with single spaces."""
    done = make(stack, *words, stdin=stdin)
    text = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0, text
    return text


def job_on(cluster: ClusterUnderTest, options: str) -> str:
    """Run a job as ada from /tmp, and return its node."""
    return cluster.run_as("ada", "head", f"cd /tmp; srun {options} --immediate=60 printenv SLURMD_NODENAME", 90).strip()


def takes_jobs(cluster: ClusterUnderTest, node: str) -> bool:
    return cluster.run("head", f"sinfo -h -n {node} -o %T | sort -u").strip() == "idle"


def pod_of(cluster: ClusterUnderTest) -> dict[str, Any]:
    """Return the host p1 in the config."""
    host: dict[str, Any] = cluster.config["tailrack:sites"][1]["hosts"][0]
    return host


def test_a_job_without_a_partition_runs_on_a_pod_in_a_cluster_of_pods(cluster: ClusterUnderTest) -> None:
    assert job_on(cluster, "") == "p1"
    refused = cluster.attempt("head", "su - ada -c 'cd /tmp; srun -p all hostname'")
    assert "all nodes of this cluster are pods" in refused.stderr
    job = cluster.run_as("ada", "head", "cd /tmp; sbatch --parsable -o /tmp/o --wrap hostname").strip()
    eventually(lambda: "COMPLETED" in cluster.run("head", f"scontrol show job {job}"), 60, "the batch job ended")


def test_nothing_is_measured_on_pods_and_outputs_and_report_say_no_figure(cluster: ClusterUnderTest) -> None:
    outputs = cluster.deployment().outputs()
    assert outputs["validation"] == {}
    assert outputs.get("busbw_gb_per_s") is None
    assert [(node["name"], node.get("pod")) for node in outputs["cluster"]["nodes"]] == [("head", None), ("p1", True)]
    path = Path(made_well(cluster, "report").rpartition("Written: ")[2])
    page = path.read_text(encoding="utf-8")
    assert "p1" in page
    assert "PASS" not in page
    path.unlink()
    cluster.up_ok()
    assert cluster.touched() == set()


def test_status_nodes_why_and_diagnose_tell_of_pods(cluster: ClusterUnderTest) -> None:
    assert "a pod does not confine jobs" in made_well(cluster, "status")
    assert "p1" in cluster.run("head", "tailrack nodes")
    job = cluster.run_as("ada", "head", "cd /tmp; sbatch --parsable -o /tmp/o --wrap 'sleep 600'").strip()
    waiting = cluster.run_as("ada", "head", "cd /tmp; sbatch --parsable --exclusive -o /tmp/o --wrap true").strip()
    eventually(lambda: "R" in cluster.run("head", f"squeue -h -j {job} -o %t"), 30, "the job runs")
    assert waiting in cluster.run_as("ada", "head", f"tailrack why {waiting}")
    cluster.run_as("ada", "head", f"scancel {job} {waiting}")
    path = Path(made_well(cluster, "diagnose").rpartition("Written: ")[2])
    with tarfile.open(path) as archive:
        names = [name for name in archive.getnames() if "p1" in name]
        texts = [file.read() for member in archive if member.isfile() and (file := archive.extractfile(member))]
    assert names, "it has the pod's logs"
    assert all(cluster.run("p1", f"cat {KEY}").strip().encode() not in text for text in texts)
    path.unlink()


# Asks every port that listens on all addresses, but SSH's, and prints what it answers.
ASK = """
import socket, sys
for port in sys.argv[1:]:
    probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    probe.connect(("192.0.2.1", 9))
    with socket.create_connection((probe.getsockname()[0], int(port)), 5) as asked:
        try:
            asked.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
            print(asked.recv(9))
        except ConnectionResetError:
            print(b"")
"""


def test_outside_loopback_only_the_providers_ssh_server_answers(cluster: ClusterUnderTest) -> None:
    # During a step, slurmstepd listens too. Fields: local address and port in hexadecimal, and the state; 0A listens.
    look = "sh -c 'cat /proc/net/tcp /proc/net/tcp6'"
    rows = [line.split() for line in cluster.run_as("ada", "head", f"cd /tmp; srun {look}").splitlines()]
    local = [row[1].split(":") for row in rows if len(row) > 3 and row[3] == "0A"]
    assert len(local) > 3
    (peer_api,) = {int(port, 16) for address, port in local if not address.endswith("7F")} - {22}
    # It is tailscaled's, which answers members of the tailnet alone.
    assert cluster.run("p1", f"python3 -c {shlex.quote(ASK)} {peer_api}").strip() == "b''"


def test_slurm_ends_a_job_on_a_pod_that_is_over_its_memory(cluster: ClusterUnderTest) -> None:
    use = "import time; kept = bytearray(b'x') * (500 << 20); time.sleep(90); print('unharmed')"
    job = cluster.attempt("head", f'su - ada -c "cd /tmp; srun --mem=100 python3 -c \\"{use}\\""', 120)
    assert job.returncode not in (0, 124), job.stdout + job.stderr
    assert "unharmed" not in job.stdout
    assert "memory limit" in job.stderr


def test_a_user_logs_in_to_a_pod_only_with_a_key_that_a_job_wrote(cluster: ClusterUnderTest, tmp_path: Path) -> None:
    key, host = tmp_path / "key", pod_of(cluster)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    text = key.with_suffix(".pub").read_text(encoding="utf-8").strip()
    login = ["ssh", "-F", "none", "-i", str(key), "-p", str(host["port"]), f"ada@{host['address']}", "id", "-un"]
    login[1:1] = ["-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"]
    assert subprocess.run(login, check=False, capture_output=True).returncode == 255
    write = f"umask 77; mkdir -p ~/.ssh; echo {text} >~/.ssh/authorized_keys"
    cluster.run_as("ada", "head", f"cd /tmp; srun sh -c {shlex.quote(write)}")
    done = subprocess.run(login, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, "ada"), done.stderr
    cluster.run_as("ada", "head", "cd /tmp; srun sh -c 'rm -r ~/.ssh'")


def test_a_pods_new_container_is_trusted_by_hand_and_runs_jobs_again(cluster: ClusterUnderTest) -> None:
    # slurmctld would wait for the end of a job whose pod is lost during its epilog for minutes.
    eventually(lambda: takes_jobs(cluster, "p1"), 60, "no job is left")
    again = recreate_pod(cluster.lab, "p1", "pods")
    before = pod_of(cluster)
    assert (again["port"], again["host_key"]) != (before["port"], before["host_key"])
    cluster.config["tailrack:sites"][1]["hosts"] = [{key: again[key] for key in again if key != "host_key"}]
    summary = cluster.up()
    assert not summary.ok
    assert "make trust" in " ".join(failure.message for failure in summary.failures)
    assert make(cluster, "trust").returncode == 1, "nobody is there to say yes"
    shown = made_well(cluster, "trust", stdin="yes\n")
    assert f"{again['address']}:{again['port']}" in shown
    key = cluster.folder / "key.pub"
    key.write_text(again["host_key"], encoding="utf-8")
    fingerprint = subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True, check=True).stdout.split()
    assert fingerprint[1] in shown
    assert "Every host has a host key" in made_well(cluster, "trust")
    cluster.up_ok()
    eventually(lambda: takes_jobs(cluster, "p1"), 60, "p1 takes jobs")
    assert job_on(cluster, "") == "p1"


def test_a_pod_that_lost_its_workspace_is_set_up_as_a_new_machine(cluster: ClusterUnderTest) -> None:
    eventually(lambda: takes_jobs(cluster, "p1"), 60, "no job is left")
    container = cluster.container("p1")
    for words in (["rm", "-f", container], ["volume", "rm", f"{container}-workspace"]):
        subprocess.run(["docker", *words], check=True, capture_output=True)
    cluster.config["tailrack:sites"][1]["hosts"] = [own_machine(cluster.lab, "p1", like="pod", site="pods")]
    cluster.up_ok()
    eventually(lambda: takes_jobs(cluster, "p1"), 60, "p1 takes jobs")
    assert job_on(cluster, "") == "p1"


def test_a_pool_of_pods_joins_and_runs_jobs_without_measuring(cluster: ClusterUnderTest, pool: PoolUnderTest) -> None:
    assert pool.deployment().outputs()["validation"] == {}
    eventually(lambda: takes_jobs(cluster, "q1"), 60, "q1 takes jobs")
    assert job_on(cluster, "-p more") == "q1"
    assert "note for p1, q1: a pod does not confine jobs" in cluster.run("head", "tailrack nodes")
    pool.up_ok()
    assert pool.touched() == set()


def old_key_on(cluster: ClusterUnderTest, pod: str, key: str) -> list[str]:
    """Return the files of a pod that contain a munge key."""
    search = (
        f"grep -rlF --exclude-dir=proc --exclude-dir=sys --exclude-dir=dev -e {shlex.quote(key)} / 2>/dev/null; true"
    )
    return cluster.run(pod, search, 120).splitlines()


def test_a_new_munge_key_replaces_the_old_one_on_every_pod(cluster: ClusterUnderTest, pool: PoolUnderTest) -> None:
    old = cluster.run("head", f"cat {KEY}").strip()
    for pod in ("p1", "q1"):
        assert sorted(old_key_on(cluster, pod, old)) == sorted([KEY, SAVED_KEY])
    cluster.config["tailrack:cluster"]["munge_generation"] = "2"
    cluster.up_ok()
    new = cluster.run("head", f"sha256sum <{KEY}")
    for pod in ("p1", "q1"):
        assert cluster.run(pod, f"sha256sum <{KEY}") == new
        assert old_key_on(cluster, pod, old) == []
        eventually(lambda pod=pod: takes_jobs(cluster, pod), 60, f"{pod} takes jobs")  # type: ignore[misc]
    assert [job_on(cluster, "-p pods"), job_on(cluster, "-p more")] == ["p1", "q1"]
    eventually(lambda: takes_jobs(cluster, "q1"), 60, "no job is left")
    # A pod of a pool, whose stack has not run since, must come back with the new key.
    recreate_pod(cluster.lab, "q1", "more")
    eventually(lambda: cluster.attempt("q1", f"sha256sum <{KEY}").stdout == new, 60, "the key is back")
    # Until its slurmd starts, slurmctld takes it for idle, and a job there fails.
    job = "su - ada -c 'cd /tmp; srun -p more --immediate=60 printenv SLURMD_NODENAME'"
    eventually(lambda: cluster.attempt("head", job, 90).stdout.strip() == "q1", 150, "q1 runs a job")


def test_a_pool_of_pods_leaves_nothing_on_the_head_node(cluster: ClusterUnderTest, pool: PoolUnderTest) -> None:
    again = own_machine(cluster.lab, "q1", like="pod", site="more")
    pool.config["tailrack:sites"][0]["hosts"] = [again]
    pool.up_ok()
    assert "Keeping stack podstack-q: " in made_well(pool, "reap")
    made_well(pool, "down")
    assert "q1" not in cluster.run("head", LEFT)
    assert "more" not in cluster.run("head", "sinfo -h -o %R")
    # It logs out when the session of its last step has ended.
    eventually(lambda: cluster.attempt("q1", f"test -e {KEY} -o -e /workspace/.tailrack").returncode == 1, 90, "left")
    cluster.up_ok()
    assert cluster.touched() == set()
    assert job_on(cluster, "") == "p1"


def test_a_pool_of_pods_without_its_cluster_is_removed(cluster: ClusterUnderTest, pool: PoolUnderTest) -> None:
    seal(pool)
    pool.up_ok()
    subprocess.run(["docker", "rm", "-f", cluster.container("head")], check=True, capture_output=True)
    assert "Stack podstack-q is destroyed." in made_well(pool, "down", "--cluster-gone")
