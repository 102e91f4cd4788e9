"""An elastic pool on the head node: its placeholders in slurmctld's files, and machines that come and go."""

import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from components.roles.slurm.slurm.node_lines import node_set_lines
from components.steps.composition import POOL, compose
from tests.unit.shell import ROLES, Shell, assert_ok

Run = Callable[..., subprocess.CompletedProcess[str]]
SLURM = "/var/lib/tailrack/slurm"
BASE = "ClusterName=lab\nPartitionName=all Nodes=ALL Default=YES"
SITE = [*node_set_lines("site-far", "far")]


def row(name: str) -> list[str]:
    line = f"NodeName={name} State=CLOUD CPUs=8 Feature=site-far"
    return [name, "far", line, f'member("{name}", "far", "", 0)', "ALL 1024\nsite-far 1024", ""]


ROWS = (row("e1"), row("e2"))


@pytest.fixture
def pool(shell: Shell) -> Run:
    """Run the step of the elastic pool `acme.burst` with placeholders e1 and e2, on a head node with a cluster."""
    shell.write(f"{SLURM}/base/slurm.conf", f"{BASE}\n")
    shell.write(f"{SLURM}/base/topology.conf", "# Written by tailrack.\n")
    shell.write(f"{SLURM}/base/job_submit.lua", "-- Written by tailrack.\n")
    shell.stub("scontrol", '[ "$1" != ping ] || echo "Slurmctld(primary) is UP"')

    def run(action: str = "up", rows: Any = ROWS, **values: Any) -> subprocess.CompletedProcess[str]:
        header = {
            "pool_owner": "acme.burst", "pool_nodes": [name for name, *_ in rows],
            "pool_kinds": [], "pool_slurm_conf": SITE, "pool_placeholders": list(rows), "pool_kept": [], **values,
        }  # fmt: skip
        return shell.step(compose(ROLES, POOL), header, action, name="burst-pool", host="head")

    return run


def conf(shell: Shell, name: str = "slurm.conf") -> str:
    return shell.path(f"/etc/slurm/{name}").read_text()


def test_placeholders_are_in_all_files_until_their_pool_goes(shell: Shell, pool: Run) -> None:
    assert_ok(pool(pool_kept=["e1"]))
    text = conf(shell)
    assert "NodeName=e1 State=CLOUD" in text
    assert "SuspendProgram=/bin/true\nResumeProgram=/bin/true\nSuspendExcNodes=e1" in text
    assert "PartitionName=far Nodes=site-far MaxTime=INFINITE State=UP DefMemPerCPU=1024" in text
    assert "SwitchName=far Nodes=e1,e2\nSwitchName=tailnet Switches=far" in conf(shell, "topology.conf")
    assert 'member("e2", "far", "", 0)' in conf(shell, "job_submit.lua")
    # A machine that registers changes none of them.
    before = {name: conf(shell, name) for name in ("slurm.conf", "topology.conf", "job_submit.lua")}
    machine = {"site": "far", "owner": "acme.burst", "gres": ""}
    for name, text in machine.items():
        shell.write(f"{SLURM}/nodes/e1/{name}", f"{text}\n")
    assert_ok(pool(pool_kept=["e1"]))
    assert before == {name: conf(shell, name) for name in before}
    # A pool that goes returns waiting jobs to the queue first.
    for name in machine:
        shell.path(f"{SLURM}/nodes/e1/{name}").unlink()
    assert_ok(pool("down"))
    assert "scontrol update nodename=e1 state=down reason=tailrack: leaves the cluster" in shell.calls
    assert "NodeName" not in conf(shell)
    assert "SwitchName" not in conf(shell, "topology.conf")


def test_a_placeholder_with_a_rented_machine_stays(shell: Shell, pool: Run) -> None:
    assert pool().returncode == 0
    shell.write(f"{SLURM}/nodes/e2/owner", "acme.burst\n")
    done = pool(rows=(row("e1"),))
    assert done.returncode != 0
    assert "the config no longer has e2, whose machines are rented now" in done.stderr
    assert "state=power_down_asap" in done.stderr
    assert "NodeName=e2" in conf(shell)


def test_power_saving_of_the_clusters_own_is_refused(shell: Shell, pool: Run) -> None:
    shell.write(f"{SLURM}/base/slurm.conf", f"{BASE}\nSuspendTime=600\n")
    done = pool()
    assert done.returncode != 0
    assert "the cluster's tailrack:slurm.settings have SuspendTime, and an elastic pool needs" in done.stderr
