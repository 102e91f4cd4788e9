"""docs/first-cluster.md as its user goes through it: the blocks of that page, in order, on a cluster of its names.

What can be checked without a cluster is in tests/unit/project/test_first_cluster.py. The tests run in this order.
"""

import io
import re
import subprocess
import tarfile
from concurrent.futures import ThreadPoolExecutor

import pytest

from cli.pulumi.workspace import PROJECT
from tests.faults.test_training import final_loss
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually
from tests.page import FIRST_CLUSTER, USER, YOU, YOU_ON_HEAD, blocks

NODES = ("l1", "l2")
JOBS, TRAINING = "4. Log in, and run a first job on both machines", "5. A training run"
INSTALL = "DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends"
BLOCKS = blocks(FIRST_CLUSTER)


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """The page's cluster, of containers in the place of machines."""
    made = make_cluster("first")
    made.rent_at_lambda(len(NODES))
    made.up_ok()
    return made


def given(by: str, section: str) -> list[str]:
    """The blocks of a section that one runs."""
    return [block.text for block in BLOCKS if (block.by, block.section) == (by, section)]


def ada(cluster: ClusterUnderTest, block: str, limit: float = 120) -> str:
    """Run a block as ada on the head node, up to the first command that fails, which fails."""
    return cluster.run_as("ada", "desk", f"set -e\n{block}", limit)


def printed(cluster: ClusterUnderTest, file: str) -> str:
    """What a job has written so far."""
    return cluster.attempt("desk", f"cat /export/shared/home/ada/examples/training/{file}").stdout


def test_ada_has_the_examples_and_runs_a_first_job_on_both_machines(cluster: ClusterUnderTest) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(PROJECT / "examples", "examples")
    words = ["docker", "exec", "-i", "-u", "admin", "-w", "/home/admin", cluster.container("desk")]
    subprocess.run([*words, "tar", "-x"], input=packed.getvalue(), check=True)
    add_key, bring = given(YOU_ON_HEAD, JOBS)
    subprocess.run([*words, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "ada"], check=True)
    subprocess.run([*words, "bash", "-ec", add_key], check=True)
    log_in = [*words, "ssh", "-i", "ada", "-o", "IdentitiesOnly=yes", "-o", "StrictHostKeyChecking=no", "ada@127.0.0.1"]
    assert subprocess.run([*log_in, "id", "-un"], check=True, capture_output=True, text=True).stdout == "ada\n"
    subprocess.run([*words, "bash", "-ec", bring], check=True)
    first, _ = given(USER, JOBS)
    said = ada(cluster, first)
    assert re.search(r"^lambda +up .* l\[1-2\]$", said, re.MULTILINE), said
    assert {line for line in said.splitlines() if line in NODES} == {*NODES}
    ranks = set(re.findall(r"^rank (\d) of 2 on (\w+): the sum is 1$", said, re.MULTILINE))
    assert {node for _, node in ranks} == {*NODES}
    assert {rank for rank, _ in ranks} == {"0", "1"}


def test_ada_sees_running_jobs_and_the_reason_that_a_job_waits(cluster: ClusterUnderTest) -> None:
    _, look = given(USER, JOBS)
    said = ada(cluster, look)
    assert re.search(r"0 running, 0 waiting; 2 nodes", said), said
    assert re.search(r"^job \d+ \(wrap\) of ada: pending$", said, re.MULTILINE), said
    assert "scontrol release" in said
    assert ada(cluster, "squeue --me -h") == ""


def test_ada_trains_on_both_machines_and_an_ended_run_continues_after_a_join(cluster: ClusterUnderTest) -> None:
    (packages,) = given(YOU, TRAINING)
    (names,) = re.findall(r"apt-get -qq install (.+);", packages)
    # Debian's PyTorch, as a provider's image would bring one: PyPI's, of gigabytes, is not fetched here.
    command = f"apt-get -qq update && {INSTALL} {names} python3-torch"
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda node: cluster.run(node, command, 600), NODES))
    software, train, end_and_again = given(USER, TRAINING)
    ada(cluster, software, 240)
    # No other PyTorch has been fetched.
    assert "/usr/lib/python3" in ada(cluster, "srun ~/torch/bin/python -c 'import torch; print(torch.__file__)'")
    ada(cluster, train)
    eventually(lambda: "final loss" in printed(cluster, "train.out"), 240, "the first run has ended")
    whole = printed(cluster, "train.out")
    assert re.search(r"images per second: \d+ on 2 ranks", whole)
    assert final_loss(whole) < 1
    ada(cluster, end_and_again, 240)
    cluster.config["tailrack:sites"][1]["pools"][0]["count"] = 3
    cluster.up_ok()
    eventually(lambda: "final loss" in printed(cluster, "again.out"), 240, "the run that was ended has come to its end")
    again = printed(cluster, "again.out")
    assert "goes on from again/step-" in again
    assert final_loss(again) == pytest.approx(final_loss(whole), rel=1e-3)
    assert ada(cluster, "srun -w l3 hostname") == "l3\n"
