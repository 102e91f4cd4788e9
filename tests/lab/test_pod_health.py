"""A pod's health check drains it and takes that back, scripts of the config run there, and containers are refused."""

from collections.abc import Iterator

import pytest

from components.roles.containers.enroot_pyxis import host as enroot_pyxis_host
from components.roles.role import template
from tests.lab.cluster import ClusterUnderTest, eventually

SERVICES = "/usr/local/lib/tailrack/services"
GRES = "/etc/tailrack/gres.conf"
MINE = '#!/bin/sh\n[ ! -e /tmp/refuse ] || { echo "next: remove it"; echo "the file /tmp/refuse is here"; exit 1; }\n'
PLUGINS = "/etc/tailrack/plugstack.d"


@pytest.fixture(scope="module")
def cluster(pod_cluster: ClusterUnderTest) -> Iterator[ClusterUnderTest]:
    """The cluster with a script of its user before jobs; without it, and without this file's plugin, afterwards."""
    pod_cluster.config["tailrack:health"] = {"prolog": {"50-mine": MINE}}
    pod_cluster.up_ok()
    yield pod_cluster
    del pod_cluster.config["tailrack:health"]
    for name in ("head", "p1"):
        pod_cluster.run(name, f"rm -f {PLUGINS}/pyxis.conf")
    pod_cluster.run("head", f"sed -i '\\,^include {PLUGINS}/,d' /etc/slurm/plugstack.conf; scontrol reconfigure")


def node(cluster: ClusterUnderTest) -> str:
    """Return the pod's state and the reason of its drain."""
    return cluster.run("head", "sinfo -h -N -p pods -o '%T %E'").strip()


def check_health(cluster: ClusterUnderTest) -> None:
    """Start slurmd again, which then runs the health check; it does so every two minutes too."""
    cluster.run("p1", f"sv restart {SERVICES}/slurmd")


def test_a_pod_that_lost_a_gpu_is_drained_with_the_words_of_other_nodes(cluster: ClusterUnderTest) -> None:
    cluster.run("p1", f"cp {GRES} /tmp/gres; echo 'Name=gpu File=/dev/nvidia0' >>{GRES}")
    # The file is slurmd's too.
    cluster.run("p1", f"env -i SLURMD_NODENAME=p1 /usr/local/sbin/tailrack-nhc; cp /tmp/gres {GRES}")
    reason = "drained health: device files: 0 of 1 GPUs have a device file; next: stop the pod and start it again"
    eventually(lambda: node(cluster).startswith(reason), 60, "the pod is drained")
    assert "p1" in cluster.run("head", "tailrack nodes")


def test_slurmd_runs_the_check_and_the_pod_is_resumed_when_the_error_is_gone(cluster: ClusterUnderTest) -> None:
    check_health(cluster)
    eventually(lambda: node(cluster) == "idle none", 60, "the pod is resumed")


def test_a_script_of_the_config_runs_there_and_its_failure_is_the_reason(cluster: ClusterUnderTest) -> None:
    cluster.run("p1", "touch /tmp/refuse")
    job = cluster.run_as("ada", "head", "cd /tmp; sbatch --parsable -p pods -D /tmp -o /tmp/o --wrap true").strip()
    eventually(lambda: "drain" in node(cluster), 60, "the pod is drained")
    cluster.run("p1", "env -i SLURMD_NODENAME=p1 /usr/local/sbin/tailrack-nhc")
    words = "Prolog error: prolog.d/50-mine: ended with status 1: the file /tmp/refuse is here; next: remove it"
    assert words in node(cluster)
    cluster.run("p1", "rm /tmp/refuse")
    assert "checked: no error" in cluster.run("head", f"scancel {job}; tailrack resume p1")
    eventually(lambda: node(cluster) == "idle none", 60, "the pod is resumed")


def test_a_job_that_asks_for_a_container_fails_on_a_pod_and_says_why(cluster: ClusterUnderTest) -> None:
    """The plugin alone, on both machines: the head node knows the option, and Pyxis itself is not needed for that."""
    source = template("enroot_pyxis", "no-containers.c")
    cluster.run("p1", f"mkdir -p {PLUGINS}; cat >{enroot_pyxis_host.SOURCE} <<'END'\n{source}\nEND")
    cluster.run("p1", "(apt-get update -q && apt-get install -qy libslurm-dev) >/dev/null", 120)
    cluster.run("p1", f"gcc -Wall -fPIC -shared -o {enroot_pyxis_host.POD_PLUGIN} {enroot_pyxis_host.SOURCE}")
    plugin = cluster.run("p1", f"base64 -w 0 {enroot_pyxis_host.POD_PLUGIN}")
    cluster.run("head", f"mkdir -p {PLUGINS}; echo {plugin} | base64 -d >{enroot_pyxis_host.POD_PLUGIN}")
    for name in ("head", "p1"):
        cluster.run(name, f"echo 'required {enroot_pyxis_host.POD_PLUGIN}' >{PLUGINS}/pyxis.conf")
    cluster.run("head", f"echo 'include {PLUGINS}/*.conf' >>/etc/slurm/plugstack.conf; scontrol reconfigure")
    assert cluster.run_as("ada", "head", "srun -p pods -D /tmp echo ran", 60).strip() == "ran"
    asked = "srun -p pods -D /tmp --container-image=busybox echo ran 2>&1; echo status $?"
    shown = cluster.run_as("ada", "head", asked, 60)
    assert "this node is a pod, which has no containers for jobs" in shown
    assert "status 0" not in shown
    assert "ran" not in shown.split()
    batch = "cd /tmp; sbatch --parsable -W -p pods -D /tmp -o /tmp/batch --container-image=busybox --wrap true"
    assert cluster.run_as("ada", "head", f"{batch} || echo failed", 60).strip().endswith("failed")
