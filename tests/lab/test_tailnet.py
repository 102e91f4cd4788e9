"""Coming into the tailnet, leaving it, and what is in the way: other tailnets, taken names, an uplink that is away.

The tests share one small cluster of machines of one's own and run in the order of this file.
"""

import json
import subprocess
from typing import Any

import pytest

from lab.identity import control_name
from tests.lab.cluster import ClusterUnderTest, eventually, own_machine

URL = "http://control.lab:8080"


@pytest.fixture(scope="module")
def cluster(two_machines: ClusterUnderTest) -> ClusterUnderTest:
    """A head node that computes too, and node n1."""
    two_machines.up_ok()
    return two_machines


@pytest.fixture(scope="module")
def desktop(cluster: ClusterUnderTest) -> dict[str, Any]:
    """Somebody's machine, in a tailnet of its own."""
    host = own_machine(cluster.lab, "d1", like="desktop")
    eventually(lambda: own_tailnet(cluster, "d1") == "d1-desktop.other.ts.net.", 60, "the desktop is in its tailnet")
    return host


def hosts(cluster: ClusterUnderTest) -> list[dict[str, Any]]:
    """The list of hosts in the config."""
    found: list[dict[str, Any]] = cluster.config["tailrack:sites"][0]["hosts"]
    return found


def own_tailnet(cluster: ClusterUnderTest, node: str) -> str:
    """The full name of a machine that is in a tailnet and running, or nothing."""
    status = "tailscale status --json | jq -r 'select(.BackendState == \"Running\") | .Self.DNSName'"
    return cluster.attempt(node, status).stdout.strip()


def preferences(cluster: ClusterUnderTest, node: str) -> Any:
    """All that tailscaled was told by its user."""
    return json.loads(cluster.run(node, "tailscale debug prefs"))


def peers(cluster: ClusterUnderTest) -> set[str]:
    """Machines that the head node sees in the tailnet."""
    return set(cluster.run("head", "tailscale status --json | jq -r '.Peer // {} | .[].DNSName'").split())


def state(cluster: ClusterUnderTest, node: str) -> str:
    """Slurm's word for a node's state."""
    return cluster.attempt("head", f"sinfo -h -n {node} -o %T").stdout.strip()


def idle(cluster: ClusterUnderTest, node: str) -> bool:
    return state(cluster, node) == "idle"


def control(cluster: ClusterUnderTest, action: str) -> None:
    """Start or stop the control server."""
    subprocess.run(["docker", action, control_name(cluster.lab)], check=True, capture_output=True)


def test_a_node_that_leaves_is_gone_when_it_is_said_and_can_come_back_at_once(cluster: ClusterUnderTest) -> None:
    n1 = next(host for host in hosts(cluster) if host["name"] == "n1")
    for _ in range(2):
        assert peers(cluster) == {"n1.lab.ts.net."}
        hosts(cluster).remove(n1)
        cluster.up_ok()
        assert peers(cluster) == set()
        hosts(cluster).append(n1)
        cluster.up_ok()
        assert cluster.run_as("ada", "head", "srun -w n1 hostname").strip() == "n1"


def test_a_machine_in_a_tailnet_of_its_own_is_refused_and_nothing_on_it_is_changed(
    cluster: ClusterUnderTest, desktop: dict[str, Any]
) -> None:
    before = preferences(cluster, "d1"), cluster.run("d1", "dpkg-query -W; ls -R /etc")
    hosts(cluster).append(desktop)
    (failure,) = cluster.up().failures
    assert "d1: step d1-prepare failed: this machine is in a tailnet already, as d1-desktop.oth" in failure.message
    assert (
        "next: run 'tailscale logout' on d1; or, if that is the cluster's tailnet, set adopt: true" in failure.message
    )
    assert (preferences(cluster, "d1"), cluster.run("d1", "dpkg-query -W; ls -R /etc")) == before
    assert own_tailnet(cluster, "d1") == "d1-desktop.other.ts.net."


def test_a_machine_of_another_tailnet_is_not_adopted(cluster: ClusterUnderTest, desktop: dict[str, Any]) -> None:
    desktop["adopt"] = True
    (failure,) = cluster.up().failures
    assert f"this machine's tailnet is of http://control.lab:8082; the cluster's is of {URL}" in failure.message
    assert own_tailnet(cluster, "d1") == "d1-desktop.other.ts.net."


def test_a_machine_that_its_owner_brought_into_the_tailnet_is_adopted_as_it_is(
    cluster: ClusterUnderTest, desktop: dict[str, Any]
) -> None:
    # Without the tag it is refused: rules of the tailnet are from tag to tag.
    options = "--force-reauth --auth-key=tskey-none --hostname=d1 --ssh=false --advertise-routes=10.9.0.0/24"
    tag = "--advertise-tags=tag:cluster"
    cluster.run("d1", f"tailscale up --login-server={URL} {options} {tag}; hostnamectl hostname d1")
    before = preferences(cluster, "d1")
    cluster.up_ok()
    eventually(lambda: idle(cluster, "d1"), 60, "d1 is idle")
    assert preferences(cluster, "d1") == before
    assert before["AdvertiseRoutes"] == ["10.9.0.0/24"]


def test_a_machine_that_was_adopted_stays_in_its_tailnet_when_it_leaves(
    cluster: ClusterUnderTest, desktop: dict[str, Any]
) -> None:
    before = preferences(cluster, "d1")
    hosts(cluster).remove(desktop)
    cluster.up_ok()
    assert cluster.attempt("d1", "test -e /etc/munge/munge.key").returncode == 1
    assert cluster.attempt("d1", "systemctl is-active slurmd").stdout.strip() == "inactive"
    assert own_tailnet(cluster, "d1") == "d1.lab.ts.net."
    assert preferences(cluster, "d1") == before
    assert cluster.run("d1", "systemctl is-enabled tailscaled").strip() == "enabled"


@pytest.mark.proof
def test_a_name_that_is_taken_in_the_tailnet_is_refused_and_not_kept_under_another(cluster: ClusterUnderTest) -> None:
    own_machine(cluster.lab, "other")
    taken = f"systemctl start tailscaled && tailscale up --login-server={URL} --auth-key=tskey-none --hostname=n2"
    cluster.run("other", taken)
    hosts(cluster).append(own_machine(cluster.lab, "n2"))
    (failure,) = cluster.up().failures
    assert (
        "n2: step n2-prepare failed: the name n2 is taken in the tailnet; this machine got the name n2-1"
        in failure.message
    )
    eventually(lambda: "n2-1.lab.ts.net." not in peers(cluster), 60, "n2-1 is out of the tailnet")
    cluster.run("other", "tailscale logout")
    cluster.up_ok()
    assert own_tailnet(cluster, "n2") == "n2.lab.ts.net."


@pytest.mark.proof
def test_a_node_recovers_from_an_uplink_outage_longer_than_any_timeout(cluster: ClusterUnderTest) -> None:
    control(cluster, "stop")
    subprocess.run(["docker", "restart", cluster.container("n1")], check=True, capture_output=True)
    waits = "pgrep -x tailscale"
    eventually(lambda: cluster.attempt("n1", waits).returncode == 0, 60, "n1 waits for its tailnet address")
    # In the place of a limit that ends the wait.
    cluster.run("n1", "pkill -x tailscale")
    control(cluster, "start")
    slurmd = "systemctl is-active slurmd && mountpoint /shared"
    eventually(lambda: cluster.attempt("n1", slurmd).returncode == 0, 90, "slurmd runs and the share is mounted")
    eventually(lambda: idle(cluster, "n1"), 60, "n1 is idle")
    assert cluster.run_as("ada", "head", "srun -w n1 hostname").strip() == "n1"


@pytest.mark.proof
def test_a_node_deleted_from_the_tailnet_joins_again_at_another_address(cluster: ClusterUnderTest) -> None:
    address = cluster.run("n1", "tailscale ip -4").strip()
    cluster.run("n1", "tailscale logout")
    cluster.config["tailrack:cluster"]["munge_generation"] = "2"
    cluster.up_ok()
    now = cluster.run("n1", "tailscale ip -4").strip()
    assert now != address
    assert f"{now}/32(" in cluster.run("head", "cat /etc/exports.d/tailrack-n1.exports")
    eventually(lambda: idle(cluster, "n1"), 60, "n1 is idle")
    assert cluster.run_as("ada", "head", "srun -w n1 hostname").strip() == "n1"
