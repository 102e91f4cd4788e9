"""Jobs in containers, on GPUs too: Enroot and Pyxis as they are, where the archives have them (pack.py --artifacts)."""

import json
import re
import shutil
import statistics
from pathlib import Path

import pytest

from tests.gpu.cluster import QUICK, GpuCluster
from tests.gpu.machines import PLACE, PYTORCH
from tests.gpu.test_figures import ASKED, asked
from tests.lab.test_jobs import JOBS

ARTIFACTS = PLACE / "artifacts"
IMAGE = "nccl-tests"
TORCH_IMAGE = "pytorch"
"""An image whose python3 is this machine's with PyTorch, mounted into it: seven gigabytes that need not be packed."""
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
        python, *mounted = PYTORCH.read_text().splitlines() or [""]
        for name, its_python in {IMAGE: "", **({TORCH_IMAGE: python} if python else {})}.items():
            cluster.run("c", f"bash /var/tmp/image.sh /var/tmp/{name}.sqsh {its_python}", limit=300)
            shutil.move(tree / f"var/tmp/{name}.sqsh", export / f"{name}.sqsh")
            images.append({"name": name, "source": f"/export/{name}.sqsh"})
        mounts = "".join(f"{path} {path} none x-create={_kind(tree, path)},rbind\n" for path in mounted)
        for node in ("a", "b", "c"):
            folder = cluster.machines[node].tree / "etc/enroot/mounts.d"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "60-pytorch.fstab").write_text(mounts)
    cluster.config["tailrack:containers"] = {
        "artifacts": str(ARTIFACTS),
        # The image has the driver's libraries itself; nvidia-container-cli is not in the archives.
        "nvidia_libraries": False,
        "images": images,
    }
    cluster.measured()
    for node in ("a", "b", "c"):
        cluster.run(node, "tailrack-minute containers")


def _kind(tree: Path, path: str) -> str:
    return "dir" if Path(f"{tree}{path}").is_dir() else "file"


def test_every_node_has_shown_that_a_users_job_runs_inside(cluster: GpuCluster) -> None:
    shown = cluster.run("head", "/usr/local/sbin/tailrack-containers list")
    assert [node for node in ("a", "b", "c") if f"\n{node} " in shown] == ["a", "b", "c"]
    assert shown.count(" proven ") == 3


def test_confined_jobs_run_slurms_task_prolog(cluster: GpuCluster) -> None:
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


@pytest.mark.usefixtures("real")
def test_nccl_in_a_container_is_as_fast_as_on_the_machine(cluster: GpuCluster) -> None:
    found: dict[str, list[float]] = {"machine": [], "container": []}
    of_machine = asked("node")
    of_container = {key: value for key, value in of_machine.items() if key != "program"} | {"image": IMAGE}
    for number in range(3):  # in turn, so that whatever changes with time changes both
        for where, nccl in (("machine", of_machine), ("container", of_container)):
            cluster.measured(nodes=["c"], nccl=nccl, rerun=f"{where} {number}")
            result = cluster.deployment().outputs()["validation"]["node"]["c"]
            assert (result["verdict"], result["gate_bytes"]) == ("PASS", ASKED["node"][0]), result["reason"]
            found[where].append(result["busbw_gb_per_s"])
    (PLACE / "out" / "container-and-machine.json").write_text(json.dumps(found))
    machine, container = (statistics.median(runs) for runs in found.values())
    assert abs(container / machine - 1) <= 0.02, found


@pytest.mark.usefixtures("real")
def test_pytorchs_nccl_runs_in_a_container_as_the_example_has_it(cluster: GpuCluster) -> None:
    if not PYTORCH.read_text():
        pytest.skip("PYTORCH IN A CONTAINER IS NOT TESTED: this machine has none")
    cluster.give("ada", JOBS)
    gpus = len(cluster.machines["c"].gpus)
    told = cluster.ended("jobs", f"--export=ALL,IMAGE={TORCH_IMAGE} {cluster.all_gpus} container_nccl.sh")
    rates = [float(rate) for rate in re.findall(rf"([\d.]+) GB/s bus bandwidth over {gpus} ranks", told)]
    (PLACE / "out" / "container-pytorch.json").write_text(json.dumps(rates))
    assert rates, told
    assert max(rates) > 100, told
