"""A relay of the cluster's own: what finds no direct path between sites goes through the node that offers itself."""

import json
import subprocess
from typing import Any

import pytest

from lab.identity import network_name
from tests.lab.cluster import ClusterUnderTest, MakeCluster, eventually

PORT = 40000


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """The dev stack, whose head node is the relay and has an address that both sites reach, as a public one is."""
    made = make_cluster("r1")
    made.config["tailrack:tailnet"]["relay"] = {"node": "head", "port": PORT}
    made.up_ok()
    words = ["docker", "network", "connect", network_name(made.lab, "cloud-b"), made.container("head")]
    subprocess.run(words, check=True, capture_output=True)
    return made


def ping(cluster: ClusterUnderTest) -> str:
    """What tailscale says of the way from a1 to b1."""
    return cluster.attempt("a1", "tailscale ping --c 3 --timeout 3s --until-direct=false b1").stdout


def peer(cluster: ClusterUnderTest, node: str, other: str) -> dict[str, Any]:
    """What a node's tailscaled tells of another one."""
    status = json.loads(cluster.run(node, "tailscale status --json"))
    (found,) = (one for one in status["Peer"].values() if one["DNSName"].startswith(f"{other}."))
    return dict(found)


def test_the_relay_listens_at_its_port_and_it_alone(cluster: ClusterUnderTest) -> None:
    listening = {node: cluster.run(node, "ss -Hlnu") for node in ("head", "a1", "b1")}
    assert [node for node, sockets in listening.items() if f":{PORT} " in sockets] == ["head"]
    assert f"udp dport {PORT} accept" in cluster.run("head", "nft list table inet tailrack")
    assert f"{PORT}" not in cluster.run("a1", "nft list table inet tailrack")


def test_between_two_sites_without_a_route_the_data_goes_through_the_relay(cluster: ClusterUnderTest) -> None:
    eventually(lambda: "via peer-relay(" in ping(cluster), 90, "a1 reaches b1 by the relay")
    before = peer(cluster, "b1", "a1")["RxBytes"]
    cluster.run_as("ada", "a1", "head -c 5000000 /dev/zero | ssh b1 'cat >/dev/null'")
    told = peer(cluster, "a1", "b1")
    assert told["PeerRelay"]
    assert not told["CurAddr"]
    assert peer(cluster, "b1", "a1")["RxBytes"] - before > 5_000_000
    sessions = cluster.run("head", "tailscale debug peer-relay-sessions")
    assert f"{PORT}" in sessions


def test_without_the_option_the_node_is_no_relay_any_more(cluster: ClusterUnderTest) -> None:
    del cluster.config["tailrack:tailnet"]["relay"]
    cluster.up_ok()
    assert cluster.touched() == {"head-prepare", "head-head"}
    assert f":{PORT} " not in cluster.run("head", "ss -Hlnu")
    eventually(lambda: "via DERP(" in ping(cluster), 90, "a1 reaches b1 by the control server's relay again")
