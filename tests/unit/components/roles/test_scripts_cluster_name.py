"""A cluster that is called by another name is refused on the head node, before slurmctld is touched."""

from __future__ import annotations

import pytest

from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.slurm.head import refuse_another_cluster_name
from tests.unit.components.roles.test_scripts_idle_head import head_step
from tests.unit.shell import Shell

NAMED = "/var/lib/slurm/slurmctld/clustername"


def ask(shell: Shell, name: str) -> None:
    """Ask with a slurm.conf of that name."""
    with shell.here():
        refuse_another_cluster_name(Step("head", "head-head"), f"# ours\nClusterName={name}\nSlurmUser=slurm")


def test_another_name_is_refused_with_both_names_and_the_way_out(shell: Shell) -> None:
    shell.write(NAMED, "lab|4711\n")
    with pytest.raises(Failure, match=r"created as 'lab' .*'prod'") as refused:
        ask(shell, "prod")
    assert refused.value.remedy.startswith("set tailrack:cluster.name")


@pytest.mark.parametrize("before", ["lab|1264", "lab\n", "lab", "", None])
def test_the_same_name_and_a_new_head_node_are_let_pass(shell: Shell, before: str | None) -> None:
    if before is not None:
        shell.write(NAMED, before)
    ask(shell, "lab")


def test_the_head_step_asks_before_it_writes_anything(shell: Shell) -> None:
    shell.write(NAMED, "lab")
    before = len(shell.calls)
    done = head_step(shell, computes=False, name="prod")
    assert "created as 'lab'" in done.stderr
    assert not shell.path("/var/lib/tailrack/slurm").exists()
    assert "systemctl" not in " ".join(shell.calls[before:])
