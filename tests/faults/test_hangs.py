"""Jobs that hang: a real job whose GPUs and RAS are played, the message about it, and what `tailrack why` shows.

The GPUs are device files and a fake nvidia-smi. RAS is a fake that says so and gives an answer recorded on two H200
(tests/fixtures/ras).
"""

import base64
import json
import re
from pathlib import Path

import pytest

from tests.faults.test_job_mail import HOOK, start
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually, own_machine
from tests.lab.sealer import sealer_of
from tests.unit.fake_nvidia_smi import gpu, xml

Cluster = ClusterUnderTest
MINUTES = 5
FAKE = """#!/bin/bash
# A fake.
case "$*" in
    '-q -x') cat /usr/local/share/fake.xml ;;
    --query-gpu=index,pci.bus_id,*.used,power.draw,power.limit\\ *) cat /usr/local/share/fake-use ;;
esac
"""
# As two H200 showed it while rank 0 waited for rank 1, and while both worked.
WAITS = "0, 00000000:10:00.0, 100, 1657, 123.50, 700.00\n1, 00000000:11:00.0, 0, 1657, 124.26, 700.00\n"
WORKS = "0, 00000000:10:00.0, 99, 1883, 692.58, 700.00\n1, 00000000:11:00.0, 99, 1883, 695.37, 700.00\n"
RECORDED = Path(__file__).parents[1] / "fixtures/ras/2.28.9-behind.json"
SERVER = Path(__file__).parent / "ras_server.py"


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """The head node and a1, which has two GPUs and receives reports."""
    made = make_cluster("hangs", one_site=True)
    own_machine(made.lab, "head", site="cloud-a")
    made.config["tailrack:sites"][0]["pools"][0]["count"] = 1
    _, sealer = sealer_of(made)
    channel = {"name": "vision", "kind": "webhook", "url": {"secure": sealer.seal("http://a1:8099/hook")}}
    made.config["tailrack:job_reports"] = {"channels": [channel]}
    made.config["tailrack:users"][0]["notify"] = ["vision"]
    made.config["tailrack:accounting"] = {"enabled": False}
    made.config["tailrack:job_hangs"] = {"minutes": MINUTES}
    made.up_ok()
    made.write("a1", "/usr/local/share/fake-use", WAITS)
    made.give_gpus("a1", (0, 1), FAKE, xml([gpu(0), gpu(1)]))
    start(made, "hook", HOOK)
    return made


def sample(cluster: Cluster, times: int) -> None:
    """Let minutes pass for the samples of GPUs, and search then."""
    cluster.run("a1", f"for n in {{1..{times}}}; do /usr/local/lib/tailrack/gpu-use; done", 180)
    cluster.run("head", "tailrack-minute job-hangs")


def stall(cluster: Cluster) -> str:
    """Return what the node and the service have found, for a test that fails."""
    look = "journalctl -u tailrack-job-hangs -u tailrack-gpu-use -n 20 --no-pager -o cat"
    return cluster.run("a1", f"/usr/local/lib/tailrack/answers/job-hangs; {look}") + cluster.run("head", look)


def posted(cluster: Cluster, job: str) -> list[dict[str, str]]:
    """Return the messages about a job that the channel got."""
    lines = cluster.run("a1", "cat /root/posted 2>/dev/null || :").splitlines()
    rows = [json.loads(line.partition(" ")[2]) for line in lines]
    return [row for row in rows if f"job {job} " in row["title"]]


def test_a_hanging_job_is_reported_once_with_the_rank_and_the_next_command(cluster: Cluster) -> None:
    for path in (RECORDED, SERVER):
        text = base64.b64encode(path.read_bytes()).decode()
        cluster.run_as("ada", "head", f"cd; base64 -d >{path.name} <<<{text}; touch goes-on")
    command = f"exec python3 {SERVER.name} {RECORDED.name}"
    line = f"cd; sbatch --parsable --output=job.out -n1 -c1 --gpus=2 --wrap '{command}'"
    job = cluster.run_as("ada", "head", line).strip()

    def output() -> str:
        return cluster.attempt("head", "runuser -u ada -- cat ~ada/job.out").stdout

    eventually(lambda: "a fake of RAS" in output(), 60, "the job listens")
    assert f"localhost:{21000 + int(job) % 10000}," in output(), output()
    child = re.findall(r"rank 1 is process (\d+)", output())[0]
    # The GPUs look the same, and RAS shows progress.
    sample(cluster, 12)
    assert "seems to hang" not in cluster.why(job)
    # There it is gone at once: NFS clients keep what they have seen for seconds.
    cluster.run_as("ada", "a1", "rm goes-on")
    sample(cluster, 12)
    said = cluster.why(job)
    expected = r"rank 1 \(node a1, GPU 1\) is behind: 21 of 22 AllReduce; the others wait for it since \d\d:\d\d UTC\."
    assert re.search(expected, said), said + stall(cluster)
    assert f"next: srun --jobid={job} --overlap -N1 -n1 -w a1 py-spy dump --pid {child}\n" in said, said
    eventually(lambda: bool(posted(cluster, job)), 60, "the message arrives")
    assert posted(cluster, job)[0]["title"] == f"job {job} (wrap) seems to hang"
    assert re.search(expected, posted(cluster, job)[0]["text"])
    eventually(lambda: "tailrack: It seems to hang: rank 1" in output(), 30, "the job's output has it too")
    assert "tailrack_slurm_jobs_hanging 1" in metrics(cluster)
    sample(cluster, 6)
    assert len(posted(cluster, job)) == 1, "one message a job"
    refused = cluster.attempt("a1", "runuser -u ada -- cat /run/tailrack-private/job-hangs/*")
    assert refused.returncode != 0
    cluster.write("a1", "/usr/local/share/fake-use", WORKS)
    sample(cluster, 1)
    assert "seems to hang" not in cluster.why(job)
    cluster.run("head", f"scancel {job}")


def metrics(cluster: Cluster) -> str:
    """Return the metrics of Slurm as the head node would write them with monitoring."""
    program = "import sys; sys.path.insert(0, sys.argv[1]); "
    program += "from components.roles.commands.sll.snapshot import jobs_and_nodes; jobs, nodes, _ = jobs_and_nodes(); "
    program += "from components.roles.monitoring.monitoring.slurm_figures import slurm_figures; "
    program += "print(*(f'{m.name} {m.samples[0][1]}' for m in slurm_figures(jobs, nodes) if m.samples), sep='\\n')"
    archive = "$(grep -o '/[^ ]*/[0-9a-f]\\{64\\}' /usr/local/lib/tailrack/job-hangs)"
    return cluster.run("head", f'python3 -c "{program}" {archive}')


def test_without_the_section_nothing_of_it_stays_and_jobs_get_no_port(cluster: Cluster) -> None:
    cluster.up_ok()
    assert cluster.touched() == set()
    del cluster.config["tailrack:job_hangs"]
    cluster.up_ok()
    for node in ("head", "a1"):
        left = "ls /usr/local/lib/tailrack /etc/tailrack /etc/systemd/system /run/tailrack-private"
        assert "job-hangs" not in cluster.run(node, left)
        assert "ask-ras" not in cluster.run(node, left)
    seen = cluster.run_as("ada", "head", "srun -n1 -c1 env")
    assert "NCCL_RAS_ADDR" not in seen
