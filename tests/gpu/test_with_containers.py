"""Jobs in containers, on GPUs too: Enroot and Pyxis as they are, where the archives have them (pack.py --artifacts)."""

from __future__ import annotations

import json
import shutil

import pytest

from tests.gpu.cluster import QUICK, GpuCluster
from tests.gpu.machines import PLACE

ARTIFACTS = PLACE / "artifacts"
IMAGE = "nccl-tests"
SMOKE = "/var/lib/tailrack/containers/smoke.sqsh"


@pytest.fixture(scope="module", autouse=True)
def up(cluster: GpuCluster) -> None:
    """The cluster with containers, and with an image of what is on a machine that has GPUs."""
    if not (ARTIFACTS / "SHA256SUMS").exists():
        pytest.skip("CONTAINERS ARE NOT TESTED: the archives were packed without --artifacts")
    # Where `up` puts what it compiles: these machines have no compiler, and no package source.
    export = PLACE / "disk" / "head"
    shutil.copytree(ARTIFACTS / "pyxis", export / "shared/containers/pyxis", dirs_exist_ok=True)
    images = []
    if cluster.on_gpus:
        tree = cluster.machines["c"].tree
        shutil.copy(__file__.replace("test_with_containers.py", "container_image.sh"), tree / "var/tmp/image.sh")
        cluster.run("c", f"bash /var/tmp/image.sh /var/tmp/{IMAGE}.sqsh", limit=300)
        shutil.copy(tree / f"var/tmp/{IMAGE}.sqsh", export / f"{IMAGE}.sqsh")
        images.append({"name": IMAGE, "source": f"/export/{IMAGE}.sqsh"})
    cluster.config["tailrack:containers"] = {
        "artifacts": str(ARTIFACTS),
        # The image has the driver's libraries itself; nvidia-container-cli is not in the archives.
        "nvidia_libraries": False,
        "images": images,
    }
    cluster.measured()
    for node in ("a", "b", "c"):
        cluster.run(node, "systemctl start tailrack-containers")


def test_every_node_has_shown_that_a_users_job_runs_inside(cluster: GpuCluster) -> None:
    shown = cluster.run("head", "/usr/local/sbin/tailrack-containers list")
    assert [node for node in ("a", "b", "c") if f"\n{node} " in shown] == ["a", "b", "c"]
    assert shown.count(" proven ") == 3


def test_slurms_task_prolog_runs_where_jobs_are_confined(cluster: GpuCluster) -> None:
    inside = f"srun --quiet -N3 --switches=2 --container-image={SMOKE} sh -c 'echo $TAILRACK_INTERFACE'"
    assert cluster.run_as("ada", "head", inside, limit=90).split() == ["tailscale0"] * 3


@pytest.mark.usefixtures("real")
def test_a_job_in_a_container_has_the_gpus_that_it_asked_for_and_no_others(cluster: GpuCluster) -> None:
    look = "env -u CUDA_VISIBLE_DEVICES python3 /usr/bin/gpus-seen"
    job = f"srun --quiet -w c -n1 --gpus=1 --container-image={IMAGE} {look}"
    seen = json.loads(cluster.run_as("ada", "head", job, limit=90))
    assert len(seen["cuda"]) == len(seen["files"]) == 1


@pytest.mark.usefixtures("real")
def test_nccl_is_measured_inside_a_container(cluster: GpuCluster) -> None:
    nccl = {key: value for key, value in QUICK.items() if key != "program"}
    cluster.measured(nodes=["c"], nccl={**nccl, "image": IMAGE}, rerun="in a container")
    found = cluster.deployment().outputs()["validation"]["node"]["c"]
    (PLACE / "out" / "container.json").write_text(json.dumps(found, indent=1))
    assert (found["verdict"], found["wrong"], found["ranks"]) == ("PASS", 0, len(cluster.machines["c"].gpus)), found
    assert found["transport"] == found["expected_transport"]
