"""What Slurm promises jobs and nodes."""

import json
import re
import shlex
import subprocess
from typing import Any

import pytest

from components.validation.job_files import job_program
from components.validation.preflight.findings import Finding
from components.validation.preflight.gpus import read_preflight
from tests.lab.cluster import ClusterUnderTest, as_user, eventually
from tests.lab.run_step import run_python

SITE_OF = {"head": "cloud-a", "a1": "cloud-a", "b1": "cloud-b"}
TAKE_A_GIB = "python3 -c 'import time; kept = bytearray(2**30); kept[::4096] = bytes(2**18) ; time.sleep(40)'"
Cluster = ClusterUnderTest


def node(cluster: Cluster, name: str) -> dict[str, Any]:
    """What the controller knows of a node."""
    (found,) = records(cluster, name)
    return found


def records(cluster: Cluster, name: str) -> list[dict[str, Any]]:
    """What the controller knows of a node, if it knows the node at all."""
    found: list[dict[str, Any]] = json.loads(cluster.run("head", f"scontrol show node {name} --json"))["nodes"]
    return found


def submit(cluster: Cluster, words: str) -> str:
    """Submit a batch job as the user, wait until it runs, and return its number."""
    number = cluster.submit(words)
    eventually(lambda: cluster.job(number)["JobState"] == "RUNNING", 60, f"job {words} runs")
    return number


def memory_mb(fields: dict[str, str]) -> int:
    """What a job was given, in MB."""
    amount, unit = re.findall(r"mem=([\d.]+)([MG])", fields["AllocTRES"])[0]
    return round(float(amount) * (1024 if unit == "G" else 1))


def for_jobs(cluster: Cluster, name: str) -> int:
    """MB of a node that jobs may have."""
    known = node(cluster, name)
    return int(known["real_memory"]) - int(known["specialized_memory"])


def usable(cluster: Cluster, name: str) -> bool:
    state = {word for found in records(cluster, name) for word in found["state"]}
    return bool(state & {"IDLE", "MIXED", "ALLOCATED"}) and not state & {"DRAIN", "DOWN", "NOT_RESPONDING"}


def preflight_of(cluster: Cluster) -> dict[str, list[Finding]]:
    """Findings by node of preflight on all three, run as the measuring job runs it."""
    addresses = {name: cluster.run(name, "tailscale ip -4").strip() for name in SITE_OF}
    asked = {
        "nodes": {name: {"address": addresses[name], "site": site, "gpus": ""} for name, site in SITE_OF.items()},
        "fabric": dict.fromkeys(SITE_OF.values(), "tailscale0"),
    }
    # By stdin: it is longer than an argument may be.
    words = ["docker", "exec", "-i", cluster.container("head"), "bash", "-c", "cat >/shared/home/ada/tailrack.pyz"]
    subprocess.run(words, input=job_program(), check=True)
    srun = "srun -N3 --ntasks-per-node=1 --switches=2 --mpi=none"
    command = f"{srun} /usr/bin/python3 /shared/home/ada/tailrack.pyz preflight {shlex.quote(json.dumps(asked))}"
    return read_preflight(cluster.run_as("ada", "head", command, limit=200))


def bad(found: dict[str, list[Finding]]) -> dict[str, list[str]]:
    """What is an error or a warning, by node."""
    return {
        name: [f"{item['check']}: {item['seen']}" for item in items if item["severity"] != "info"]
        for name, items in found.items()
    }


@pytest.mark.usefixtures("no_jobs")
def test_preflight_finds_nothing_wrong_with_healthy_nodes(cluster: Cluster) -> None:
    found = preflight_of(cluster)
    assert bad(found) == {"head": [], "a1": [], "b1": []}
    # A ring by name: a1, b1, head. a1 and head are of one site.
    paths = {name: [item["seen"] for item in items if item["check"] == "tailnet path"] for name, items in found.items()}
    assert paths == {
        "a1": ["b1 is reached through a relay"],
        "b1": ["head is reached through a relay"],
        "head": ["a1 is reached directly"],
    }
    assert all(any(item["check"] == "MTU" for item in items) for items in found.values())


@pytest.mark.usefixtures("no_jobs")
@pytest.mark.proof
def test_preflight_finds_a_path_that_passes_pings_and_loses_a_mebibyte(cluster: Cluster) -> None:
    # What a1 sends is lost where it is long; Slurm's own messages to it, and its answers, are not.
    cluster.run("a1", "nft -f - <<<'table inet narrow { chain out { type filter hook output priority 0; "
                "meta l4proto udp meta length > 1250 drop; }; }'")  # fmt: skip
    try:
        assert "pong from a1" in cluster.run("head", "tailscale ping a1")
        cluster.run("head", "ping -c 2 -W 5 a1")
        found = bad(preflight_of(cluster))
    finally:
        cluster.run("a1", "nft delete table inet narrow")
    assert any("a1 answers over tailscale0, but 1 MiB does not get through" in seen for seen in found["head"])
    assert not found["b1"]


@pytest.mark.usefixtures("no_jobs")
def test_a_job_that_asks_for_no_memory_gets_the_share_of_its_cpus_and_leaves_the_rest(cluster: Cluster) -> None:
    cpus = node(cluster, "b1")["cpus"]
    jobs = [submit(cluster, "-w b1 -n1 --wrap 'sleep 300'") for _ in range(cpus)]
    given = [memory_mb(cluster.job(number)) for number in jobs]
    whole = for_jobs(cluster, "b1")
    assert node(cluster, "b1")["specialized_memory"] >= 256
    assert whole * 0.9 < sum(given) <= whole
    assert len(set(given)) == 1


@pytest.mark.usefixtures("no_jobs")
def test_an_exclusive_job_has_all_memory_that_jobs_may_have(cluster: Cluster) -> None:
    number = submit(cluster, "-w b1 --exclusive --wrap 'sleep 300'")
    assert memory_mb(cluster.job(number)) == for_jobs(cluster, "b1")
    # A step of it may have all of it too.
    assert cluster.run_as("ada", "head", f"srun --overlap --jobid={number} hostname") == "b1\n"


def test_jobs_cannot_use_the_reserved_memory_of_a_node(cluster: Cluster) -> None:
    refused = cluster.attempt("head", as_user("ada", f"srun -w b1 --mem={for_jobs(cluster, 'b1') + 1} true"))
    assert refused.returncode != 0
    assert "Requested node configuration is not available" in refused.stderr


@pytest.mark.usefixtures("no_jobs")
def test_a_job_that_takes_more_memory_than_it_was_given_is_ended_and_its_neighbour_goes_on(cluster: Cluster) -> None:
    neighbour = submit(cluster, "-w b1 -n1 --mem=200M --wrap 'sleep 300'")
    greedy = cluster.attempt("head", as_user("ada", f"srun -w b1 -n1 --mem=200M {TAKE_A_GIB}"), limit=90)
    assert greedy.returncode not in (0, 124), greedy.stderr
    assert re.search(r"oom|out.of.memory|memory limit", greedy.stderr, re.IGNORECASE), greedy.stderr
    assert cluster.job(neighbour)["JobState"] == "RUNNING"
    assert usable(cluster, "b1")


def test_a_machine_that_has_a_little_less_memory_after_a_kernel_update_is_not_drained(cluster: Cluster) -> None:
    unit = "/etc/systemd/system/slurmd.service.d/tailrack.conf"
    (has,) = (int(found) for found in re.findall(r"RealMemory=(\d+)", cluster.run("b1", "slurmd -C")))
    assert node(cluster, "b1")["real_memory"] < has - 32, "the record has less than the machine"
    # The other way round: the record has grown to all that there is.
    cluster.run(
        "b1", f"cp {unit} /root/unit; sed -i 's/RealMemory=[0-9]*/RealMemory={has}/' {unit}; systemctl stop slurmd"
    )
    try:
        cluster.run("head", "scontrol delete nodename=b1")
        cluster.run("b1", "systemctl daemon-reload; systemctl start slurmd")
        eventually(lambda: usable(cluster, "b1"), 60, "b1 is usable")
        assert node(cluster, "b1")["real_memory"] == has
    finally:
        cluster.run("b1", f"cp /root/unit {unit}; systemctl daemon-reload; systemctl stop slurmd")
        cluster.run("head", "scontrol delete nodename=b1")
        cluster.run("b1", "systemctl start slurmd")
        eventually(lambda: usable(cluster, "b1"), 60, "b1 is usable again")
        cluster.run("head", "scontrol reconfigure")


def test_slurm_waits_longer_than_an_outage_of_five_minutes(cluster: Cluster) -> None:
    shown = cluster.run("head", "scontrol show config")
    (waits,) = re.findall(r"^SlurmdTimeout\s*= (\d+) sec", shown, re.MULTILINE)
    assert int(waits) * 2 / 3 > 300, "the last answer may be a third of it old when the outage begins"
    assert re.search(r"^JobRequeue\s*= 1$", shown, re.MULTILINE)


def test_a_plain_srun_needs_no_library_of_mpi_on_the_head(cluster: Cluster) -> None:
    plugins = "/usr/lib/x86_64-linux-gnu/slurm-wlm"
    cluster.run("head", f"mkdir /root/away; mv {plugins}/mpi_pmix* /root/away/")
    try:
        assert cluster.run_as("ada", "head", "srun -w b1 hostname") == "b1\n"
    finally:
        cluster.run("head", f"mv /root/away/* {plugins}/; rmdir /root/away")


@pytest.mark.usefixtures("no_jobs")
def test_a_job_over_a_sites_limit_names_the_limit(cluster: Cluster) -> None:
    sites = "no site it may use has more than"
    for words, limit in (
        ("-N 3", f"the job asks for 3 nodes; {sites} 2; --switches=2 lets a job span two sites"),
        ("-p cloud-b -N 2", f"the job asks for 2 nodes; {sites} 1; all sites together have 1"),
        ("-N 9", f"the job asks for 9 nodes; {sites} 2; all sites together have 3"),
        ("--gpus-per-node=4", "the job asks for 4 GPUs a node; no node it may use has more than 0"),
        ("--gpus=h200:4", f"the job asks for 4 GPUs of kind h200; {sites} 0"),
        ("--gres=gpu:h200:2", "the job asks for 2 GPUs of kind h200 a node; no node it may use has more than 0"),
    ):
        # Slurm refuses some of these, and lets the others wait for ever.
        told = cluster.attempt("head", as_user("ada", f"sbatch --output=/dev/null {words} --wrap true"))
        assert limit in told.stderr


def test_a_job_within_a_sites_limits_gets_no_message(cluster: Cluster) -> None:
    for words in ("-N 2", "-p cloud-b", "-N 3 --switches=2"):
        done = cluster.attempt("head", as_user("ada", f"srun {words} true"))
        assert done.returncode == 0, done.stderr
        assert "asks for" not in done.stderr, words


def test_a_clock_that_is_not_the_heads_is_named_before_munge_refuses_it(cluster: Cluster) -> None:
    address = cluster.run("head", "tailscale ip -4").strip()
    compare = f"from components.roles.base.clock.host import compare_with_head; compare_with_head('{address}', 'b1')"
    right = run_python(cluster, "b1", compare)
    assert right.returncode == 0, right.stderr
    assert re.search("the clock is [01]s from the head node's", right.stderr)
    refused = run_python(cluster, "b1", f"import time; now = time.time; time.time = lambda: now() - 200; {compare}")
    assert refused.returncode == 1
    assert re.search("the clock here is (199|200|201)s behind the head node's", refused.stderr)
