"""A cluster with containers, wherever somebody has the files of Enroot and Pyxis at hand."""

import subprocess
from pathlib import Path

import pytest

from tests.lab.cluster import ARTIFACTS, ClusterUnderTest
from tests.lab.sealer import sealer_of

NEEDS_ARTIFACTS = pytest.mark.skipif(
    ARTIFACTS is None,
    reason="CONTAINERS ARE NOT TESTED: TAILRACK_ARTIFACTS names no folder with Enroot's packages and Pyxis' source",
)
NODES = ("head", "a1", "b1")
SHARED = "/export/shared/containers/images"
SCRATCH = "/var/lib/scratch"
TOUCHED: set[str] = set()
"""Names of the steps of the `up` that brought the images."""

_TOOLS = "/export/tools.sqsh"
PASSWORD = "lab-registry-password-nobody-may-see"


def bring_up(cluster: ClusterUnderTest) -> None:
    """The dev stack with two users and containers; then with two images, one of a registry that wants a log-in."""
    cluster.config["tailrack:users"].append({"name": "bob", "uid": 6002})
    cluster.config["tailrack:containers"] = {"artifacts": ARTIFACTS}
    cluster.config["tailrack:scratch"] = {"folder": SCRATCH}
    _, sealer = sealer_of(cluster)
    cluster.up_ok()
    for name in ("container_image.sh", "registry.py", "registry.sh"):
        put(cluster, "head", name)
    cluster.run("head", f"bash /root/container_image.sh {_TOOLS} && bash /root/registry.sh {PASSWORD}", limit=120)
    cluster.config["tailrack:containers"] |= {
        "registries": [{"host": "registry.lab:5000", "user": "puller", "password": {"secure": sealer.seal(PASSWORD)}}],
        "images": [
            {"name": "tools", "source": _TOOLS},
            {"name": "hello", "source": "puller@registry.lab:5000#team/hello:1", "where": ["cloud-a"]},
        ],
    }
    cluster.up_ok()
    TOUCHED.update(cluster.touched())
    for node in NODES:
        cluster.run(node, "tailrack-minute containers")


def put(cluster: ClusterUnderTest, node: str, name: str) -> None:
    """Copy a file of this folder to a machine."""
    file = Path(__file__).with_name(name)
    subprocess.run(["docker", "cp", "-q", str(file), f"{cluster.container(node)}:/root/{name}"], check=True)


def inside(cluster: ClusterUnderTest, words: str, command: str, *, user: str = "ada", node: str = "head") -> str:
    """Run a command in a container by srun, called as the user on a node; its stdout."""
    return cluster.run_as(user, node, f"srun --quiet {words} {command}", limit=90)
