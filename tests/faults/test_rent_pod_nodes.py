"""Pods that a pool rents from the played RunPod, with jobs on them; the bill is zero at the end."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli import lab_commands
from cli.pulumi.find_engine import Found
from tests.lab.cluster import SMALL_MEASUREMENT, ClusterUnderTest, MakeCluster, eventually
from tests.lab.pool_under_test import PoolUnderTest, bring_up_head_alone
from tests.lab.sealer import sealer_of
from tests.played_cloud.account import Account
from tests.played_cloud.pods import Pods
from tests.played_cloud.server import WRITE, PlayedCloud, serve

API_KEY, TYPE, REGION = "rpa_played.abc123", "NVIDIA_L4", "us-ks-2"


@pytest.fixture(scope="module")
def cluster(make_cluster: MakeCluster) -> ClusterUnderTest:
    """A head node that computes, alone."""
    return bring_up_head_alone(make_cluster("runpod"))


@pytest.fixture(scope="module")
def cloud(cluster: ClusterUnderTest) -> Iterator[PlayedCloud]:
    """A played RunPod, whose pods are in the cluster's lab."""
    with Pods(cluster.lab, lab_commands.STATE_DIR, [REGION]).joined() as pods:
        account = Account(pods, {TYPE: 44})
        account.capacity = {(TYPE, REGION): 1}
        with serve(PlayedCloud(account, {API_KEY: WRITE})) as played:
            yield played


@pytest.fixture
def pool(cluster: ClusterUnderTest, cloud: PlayedCloud, tmp_path: Path, found: Found) -> Iterator[PoolUnderTest]:
    """A pool of one pod that is not up; at its end, nothing is rented."""
    site: dict[str, Any] = {
        "name": "pods",
        "kind": "runpod",
        "region": REGION,
        "accept_pod_risk": True,
        "private_key_file": str(lab_commands.STATE_DIR / cluster.lab / "id_ed25519"),
        "base_url": cloud.url_of("runpod"),
        "pools": [{"name": "p", "type": TYPE}],
    }
    config: dict[str, Any] = {"tailrack:sites": [site], "tailrack:validation": SMALL_MEASUREMENT}
    made = PoolUnderTest(cluster, "rented", tmp_path, found, config)
    made.deployment().workspace.forget()
    _, sealer = sealer_of(made)
    made.config["tailrack:tailnet"] = {"auth_key": {"secure": sealer.seal("any-key")}}
    made.config["tailrack:api_keys"] = {"runpod": {"secure": sealer.seal(API_KEY)}}
    yield made
    for section in ("tailrack:api_keys", "tailrack:tailnet"):
        made.config.pop(section, None)
    made.remove()
    assert cloud.account.bill() == [], "the bill is not zero"


def test_a_rented_pod_runs_jobs_after_a_replacement_and_is_returned(pool: PoolUnderTest, cloud: PlayedCloud) -> None:
    pool.up_ok()
    run_job = "srun -p pods -D /tmp sh -c 'echo $SLURMD_NODENAME'"
    assert pool.cluster.run_as("ada", "head", run_job).strip() == "p1"

    (machine,) = cloud.account.bill()
    cloud.account.restart(machine.id)
    pool.up_ok()
    assert any("p1: its machine" in event.text and "has another address" in event.text for event in pool.events)
    eventually(lambda: "idle" in pool.cluster.run("head", "sinfo -h -n p1 -o %T"), 150, "p1 is back")
    assert pool.cluster.run_as("ada", "head", run_job).strip() == "p1"
    assert cloud.account.launched == 1

    assert pool.deployment().destroy().ok
    assert cloud.account.bill() == []
