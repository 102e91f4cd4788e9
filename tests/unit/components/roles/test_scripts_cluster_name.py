"""A cluster that is called by another name is refused on the head node, before slurmctld is touched."""

from __future__ import annotations

import subprocess

import pytest

from components.roles.role import Value
from tests.unit.shell import Shell

NAMED = "/var/lib/slurm/slurmctld/clustername"


def asked(shell: Shell, name: str) -> subprocess.CompletedProcess[str]:
    """Ask with a slurm.conf of that name."""
    conf: dict[str, Value] = {"SLURM_SLURM_CONF": f"# ours\nClusterName={name}\nSlurmUser=slurm"}
    told = "trap 'echo \"${REASON:-} next: ${REMEDY:-}\"' EXIT\n"
    return shell.call(f"{told}refuse_another_cluster_name", conf, "slurm/head")


def test_another_name_is_refused_with_both_names_and_the_way_out(shell: Shell) -> None:
    shell.write(NAMED, "lab|4711\n")
    done = asked(shell, "prod")
    assert done.returncode != 0
    assert "created as 'lab'" in done.stdout
    assert "'prod'" in done.stdout
    assert "next: set tailrack:cluster.name" in done.stdout


@pytest.mark.parametrize("before", ["lab|1264", "lab\n", "lab", "", None])
def test_the_same_name_and_a_new_head_node_are_let_pass(shell: Shell, before: str | None) -> None:
    if before is not None:
        shell.write(NAMED, before)
    done = asked(shell, "lab")
    assert done.returncode == 0, done.stderr


def test_the_head_step_asks_before_it_writes_anything(shell: Shell) -> None:
    shell.write(NAMED, "lab")
    conf: dict[str, Value] = {"SLURM_SLURM_CONF": "ClusterName=prod", "HEAD_COMPUTES": False}
    done = shell.call("slurm_head", conf, "slurm/head")
    assert done.returncode != 0
    assert not shell.path("/var/lib/tailrack/slurm").exists()
    assert "systemctl" not in " ".join(shell.calls)
