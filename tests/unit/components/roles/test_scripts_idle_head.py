"""A head node that runs no jobs: whatever started a slurmd there, none runs after its step."""

import subprocess
from unittest import mock

import pytest

from components.roles.role import Value
from components.roles.slurm.slurm import host as slurm_host
from tests.unit.shell import Shell, assert_ok, role_header, script_of

HEAD = script_of("slurm", "head")
UNIT = "/etc/systemd/system/slurmd.service.d/tailrack.conf"


def head_step(shell: Shell, computes: bool, name: str = "lab") -> subprocess.CompletedProcess[str]:
    """Run the part of the head node's step that is about slurmd; the controller takes any files."""
    conf: dict[str, Value] = {**role_header("slurm"), "head_computes": computes, "slurm_job_limit_seconds": 0}
    conf |= {
        f"slurm_{name}": "" for name in ("gres_conf", "topology_conf", "cgroup_conf", "mpi_conf", "job_submit_lua")
    }
    conf |= {"slurm_slurm_conf": f"ClusterName={name}", "head_expire_plan": "{}", "head_expire_values": "{}"}
    of_node = ("slurm_conf", "gres_conf", "job_submit_lua", "memory", "gpu_cpus", "site", "profile")
    conf |= {f"node_{name}": "x" for name in of_node}
    conf |= {"node_name": "head", "pool_owner": "", "pool_forget_after_minutes": 0, "share_path": "/srv"}
    with mock.patch.object(slurm_host, "offer", return_value=""):
        return shell.step(HEAD, conf, name="head-head", host="head")


@pytest.fixture
def machine(shell: Shell) -> Shell:
    """A machine with slurmd, which the controller knows as a node with a job of ada's."""
    shell.write(UNIT, "[Service]\n")
    shell.write("/etc/systemd/system/tailrack-slurmd-watchdog.service", "[Service]\n")
    shell.write("known", "")
    shell.write("jobs", "12\n")
    shell.stubs("systemctl", "chown")
    shell.stub("slurmctld", "echo slurm-wlm 24.11.5")
    shell.stub(
        "squeue",
        f'case "$*" in *%u*) [ ! -s "{shell.root}/jobs" ] || echo "12 ada RUNNING" ;; '
        f'*) cat "{shell.root}/jobs" ;; esac',
    )
    shell.stub(
        "scontrol",
        f"""case "$*" in
"show node head") [ -e "{shell.root}/known" ] ;;
"show job 12 --json") echo '{{"jobs":[{{"job_id":12,"job_state":["RUNNING"],"requeue":true,"batch_flag":true}}]}}' ;;
"delete nodename=head") rm "{shell.root}/known" ;;
"requeue 12") : >"{shell.root}/jobs" ;;
esac""",
    )
    return shell


def test_one_that_computed_before_sees_its_jobs_off_and_ends_slurmd_for_good(machine: Shell) -> None:
    assert_ok(head_step(machine, computes=False))
    calls = machine.calls
    order = [
        "scontrol update nodename=head state=drain reason=tailrack: runs no jobs any more",
        "scontrol requeue 12",
        "systemctl disable -q --now tailrack-slurmd-watchdog",
        "systemctl disable -q --now slurmd",
        "scontrol delete nodename=head",
    ]
    assert [call for call in calls if call in order] == order
    assert not machine.path(UNIT).exists()


def test_the_head_node_stops_an_unregistered_slurmd_of_the_image_if_there_is_one(machine: Shell) -> None:
    machine.path("/known").unlink()
    assert head_step(machine, computes=False).returncode == 0
    assert "systemctl disable -q --now slurmd" in machine.calls
    assert not any(call.startswith(("squeue", "scontrol update", "scontrol delete")) for call in machine.calls)
    before = len(machine.calls)
    machine.path("/etc/systemd/system/tailrack-slurmd-watchdog.service").unlink(missing_ok=True)
    machine.stub("systemctl", '[ "$*" != "cat slurmd" ]')
    assert head_step(machine, computes=False).returncode == 0
    assert not any("disable" in call for call in machine.calls[before:])


def test_one_that_computes_keeps_it(machine: Shell) -> None:
    assert head_step(machine, computes=True).returncode == 0
    assert not any("disable" in call for call in machine.calls)
    assert machine.path(UNIT).exists()
