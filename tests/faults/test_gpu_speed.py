"""The deep check names a sick GPU before a user's job meets it: one with a narrow link, and one that waits for a remap.

The GPUs are device files and a fake nvidia-smi. Without NVIDIA's driver no bandwidth is measured:
tests/gpu/speed_by_hand.py does that on real ones.
"""

import json

import pytest

from tests.faults.test_deep_check import node
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually
from tests.unit.fake_nvidia_smi import gpu, xml

Cluster = ClusterUnderTest
FAKE = """#!/bin/bash
# A fake.
case "$*" in
    '-q -x') cat /usr/local/share/fake.xml ;;
    *) exit 2 ;;
esac
"""
GPUS = 4
NARROW = "GPU 3 (0000:13:00.0): PCIe x4 (at idle); its neighbours have x16"
CHECK, RECORDS = "/usr/local/sbin/tailrack-deep-check", "/var/lib/tailrack/deep-check"


def shown(width: int = 16, *, remap: bool = False) -> str:
    """A last GPU with a link of some lanes, and a third one with a row remap that waits for a reset."""
    gpus = [gpu(minor, width=width if minor == GPUS - 1 else 16, remap=remap and minor == 2) for minor in range(GPUS)]
    return xml(gpus)


def play(cluster: Cluster, width: int = 16, *, remap: bool = False) -> None:
    cluster.write("a1", "/usr/local/share/fake.xml", shown(width, remap=remap))


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> Cluster:
    """The head node and a1, which has four GPUs, with the deep check on."""
    made = make_cluster("gpuspeed", one_site=True)
    made.config["tailrack:health"] = {"deep_check": {"every_hours": 24, "minutes": 3}}
    made.up_ok()
    made.give_gpus("a1", range(GPUS), FAKE, shown(4))
    made.run("head", "systemctl stop tailrack-minute.timer")
    return made


def check(cluster: Cluster) -> str:
    return cluster.run("head", f"{CHECK} a1", limit=300)


def test_a_gpu_with_a_x4_link_is_named_to_everybody_and_the_node_goes_on(cluster: Cluster) -> None:
    stdout = check(cluster)
    assert f"a1: warning: {NARROW}" in stdout, stdout
    assert "DRAIN" not in node(cluster)["state"]
    for shown in (cluster.run("head", "tailrack nodes"), cluster.run_as("ada", "head", "tailrack nodes")):
        assert f"deep check: {NARROW}" in shown, shown
        assert "next: check the card's seat, riser and slot" in shown
    rows = json.loads(cluster.run_as("ada", "head", "tailrack nodes --json a1"))["nodes"]
    assert [item["seen"] for item in rows[0]["gpus"]] == [NARROW]
    # All GPUs are stored, with the reason why no bandwidth was measured.
    stored = json.loads(cluster.run("head", f"cat {RECORDS}/gpus/a1.json"))
    assert [reading["width"] for reading in stored["readings"]] == [16, 16, 16, 4]
    assert all("libcuda" in reading["doubts"][0] for reading in stored["readings"]), stored
    assert cluster.run("head", f"stat -c '%U %a' {RECORDS}/gpus/a1.json").split() == ["root", "600"]
    assert cluster.run_as("ada", "head", "srun -w a1 --gpus=4 --immediate=30 hostname", limit=90) == "a1\n"


def test_a_gpu_that_waits_for_a_reset_drains_its_node_and_a_healthy_one_is_no_finding(cluster: Cluster) -> None:
    play(cluster, remap=True)
    check(cluster)
    assert "DRAIN" in node(cluster)["state"]
    assert node(cluster)["reason"].startswith(
        "tailrack deep check: GPU speed: GPU 2 (0000:12:00.0): a row remap is pending"
    )
    play(cluster)
    cluster.run("head", "scontrol update nodename=a1 state=undrain")
    # Slurm first waits for an answer of the node.
    eventually(lambda: node(cluster)["state"] == ["IDLE", "DYNAMIC_NORM"], 60, "the node is idle")
    check(cluster)
    assert "DRAIN" not in node(cluster)["state"]
    assert "deep check" not in cluster.run("head", "tailrack nodes")
