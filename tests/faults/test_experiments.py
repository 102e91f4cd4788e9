"""An experiment that two nodes log to MLflow from containers, through a restart and two losses of the head node.

Machines of one's own: a head node, two nodes, and a machine that keeps the backups and is in no cluster. The tests run
in the order of this file.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab import experiments
from tests.lab.cluster import ARTIFACTS, ClusterUnderTest, MakeCluster, as_user, own_machine
from tests.lab.containers import NEEDS_ARTIFACTS, put
from tests.lab.experiments import RUNS, STEPS, WHEELS, asked, bring_client, bring_job, bring_wheels, restart, url
from tests.lab.vault import open_vault

pytestmark = NEEDS_ARTIFACTS
NODES = ("n1", "n2")
IMAGE = "/export/tools.sqsh"
OF_THE_IMAGE = "An image of the lab"
# The client is the job's own business: here it lies on each node, and the container has it where it likes.
INSIDE = f"srun --quiet --container-image=tools --container-mounts={experiments.PROGRAM}:/client:ro"
LOGS = "/client/bin/python -W ignore /shared/home/ada/log.py"


@dataclass
class Lab:
    """The stack, its head node as a host of its config, and the job's image on this machine."""

    cluster: ClusterUnderTest
    head: dict[str, Any]
    image: Path

    def lose_the_head(self, *, and_the_share: bool) -> None:
        """Have another machine in its place, made of the backup; the share's disk is put into it, or lost too."""
        lab = self.cluster
        lab.run("head", "systemctl start tailrack-backup", limit=120)
        name = lab.container("head")
        subprocess.run(["docker", "rm", "-f", name], check=True, capture_output=True)
        if and_the_share:
            subprocess.run(["docker", "volume", "rm", f"{name}-export"], check=True, capture_output=True)
        self.head.update(own_machine(lab.lab, "head"))
        lab.config["tailrack:head"]["restore_from"] = "latest"
        lab.config["tailrack:allow"] = ["head-replaced"]
        # What its owner had put there.
        bring_wheels(lab)
        subprocess.run(["docker", "cp", "-q", self.image, f"{name}:{IMAGE}"], check=True)
        lab.up_ok()

    def in_containers(self, words: str = "--container-mount-home") -> str:
        """Log from both nodes at once; what the tasks printed."""
        return self.cluster.run_as("ada", "head", f"{INSIDE} -N2 {words} {LOGS}", 300)

    def runs(self) -> Any:
        """What MLflow knows of the two nodes."""
        return asked(self.cluster, "ada", RUNS)


def of_each(losses: int, checkpoints: bool = True) -> dict[str, Any]:
    """What MLflow should know, as RUNS tells it."""
    files = [f"checkpoints/step-{STEPS}.pt"] if checkpoints else []
    return {node: [losses, 1234.5, "FINISHED", files, OF_THE_IMAGE] for node in NODES}


@pytest.fixture(scope="module")
def lab(make_cluster: MakeCluster, tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Up with containers first, whose tools make the image; then with the image, MLflow and backups."""
    made = make_cluster("tried")
    folder = tmp_path_factory.mktemp("tried")
    head, *nodes, vault = (own_machine(made.lab, name) for name in ("head", *NODES, "vault"))
    made.use_machines({"name": "rack", "fabric": "tailnet", "hosts": [head, *nodes]})
    made.config["tailrack:containers"] = {"artifacts": ARTIFACTS}
    backup = open_vault(made, vault, "/srv/backups", folder)
    made.up_ok()
    put(made, "head", "container_image.sh")
    made.run("head", f"bash /root/container_image.sh {IMAGE}", limit=120)
    image = folder / "tools.sqsh"
    subprocess.run(["docker", "cp", "-q", f"{made.container('head')}:{IMAGE}", image], check=True)
    bring_wheels(made)
    made.config["tailrack:containers"]["images"] = [{"name": "tools", "source": IMAGE}]
    made.config["tailrack:mlflow"] = {"index": WHEELS}
    made.config["tailrack:backup"] = backup
    made.up_ok()
    for node in NODES:
        made.run(node, "tailrack-minute containers", limit=90)
        bring_client(made, node)
    bring_job(made)
    return Lab(made, head, image)


def test_mlflow_gives_a_container_its_address_and_keeps_the_jobs_own_settings(lab: Lab) -> None:
    def told(before: str = "") -> set[str]:
        words = f"{before} srun --quiet -w n1 --container-image=tools env"
        return {line for line in lab.cluster.run_as("ada", "head", words, 90).splitlines() if line.startswith("MLFLOW")}

    where = f"MLFLOW_TRACKING_URI={url(lab.cluster)}"
    assert told() == {where, "MLFLOW_EXPERIMENT_NAME=ada"}
    assert told("MLFLOW_EXPERIMENT_NAME=other") == {where, "MLFLOW_EXPERIMENT_NAME=other"}


def test_two_nodes_log_from_containers_that_have_the_home(lab: Lab) -> None:
    assert "goes on without MLflow" not in lab.in_containers()
    assert lab.runs() == of_each(STEPS)


def test_it_is_there_after_a_restart(lab: Lab) -> None:
    restart(lab.cluster, "n1")
    assert lab.runs() == of_each(STEPS)


def test_a_container_gets_the_login_by_home_or_mount_or_reports_its_absence(lab: Lab) -> None:
    ask = "/client/bin/python -W ignore -c 'import mlflow; print(len(mlflow.search_experiments()), \"known\")'"

    def asks(words: str, more: str = "") -> str:
        once = "MLFLOW_HTTP_REQUEST_MAX_RETRIES=0"
        done = lab.cluster.attempt("head", as_user("ada", f"{once} {INSIDE}{more} -w n1 {words} {ask}"), 120)
        return done.stdout + done.stderr

    folder = "/shared/home/ada/.mlflow"
    # MLflow's own experiment, and ada's.
    assert "2 known" in asks("--container-mount-home")
    assert "2 known" in asks("--container-mount-home --container-remap-root")
    assert "2 known" in asks("", f",{folder}:{folder}:ro")
    assert "You are not authenticated" in asks("")


def test_it_is_there_after_a_restore_with_its_files_and_a_training_goes_on_in_the_same_run(lab: Lab) -> None:
    lab.lose_the_head(and_the_share=False)
    assert lab.runs() == of_each(STEPS)
    assert "goes on without MLflow" not in lab.in_containers()
    assert lab.runs() == of_each(2 * STEPS)


def test_the_logged_data_survives_the_loss_of_the_share_except_its_files(lab: Lab) -> None:
    lab.lose_the_head(and_the_share=True)
    assert lab.runs() == of_each(2 * STEPS, checkpoints=False)
    bring_job(lab.cluster)
    assert "goes on without MLflow" not in lab.in_containers()
    # What a run was noted in lay on the share: these are new ones.
    assert lab.runs() == of_each(STEPS)
    every = "print(json.dumps(len(client.search_runs([one.experiment_id for one in client.search_experiments()]))))"
    assert asked(lab.cluster, "ada", every) == 2 * len(NODES)


def test_an_up_after_it_changes_nothing(lab: Lab) -> None:
    lab.cluster.up_ok()
    assert lab.cluster.touched() == set()
