"""A pod that starts again: slurmctld forgets the jobs of the earlier start, and a restart of slurmd alone ends none."""

import json

import pytest

from components.roles.slurm.slurm.pod import end_lost_jobs
from tests.unit.shell import Shell

DOWN = "scontrol update nodename=p1 state=down reason="


@pytest.fixture
def pod(shell: Shell) -> Shell:
    """A pod in its first start, with job 7 in slurmctld."""
    container_start(shell, 1000)
    shell.write("proc/sys/kernel/random/boot_id", "5f0c\n")
    shell.stub("squeue", "echo 7")
    has_node(shell)
    return shell


def container_start(shell: Shell, ticks: int) -> None:
    """Write the time at which the first process, whose name has a space, has started."""
    shell.write("proc/1/stat", f"1 (a (b) c) S {' '.join(['0'] * 18)} {ticks} 0 0")


def has_node(shell: Shell, *flags: str, reason: str = "") -> None:
    job = {"job_id": 7, "job_state": ["RUNNING"]}
    node = json.dumps({"nodes": [{"name": "p1", "state": ["ALLOCATED", *flags], "reason": reason}], "jobs": [job]})
    shell.stub("scontrol", f"case $* in *--json) echo '{node}' ;; ping) echo 'head is UP' ;; esac")


def run(shell: Shell) -> int:
    shell.hurry()
    return shell.call(end_lost_jobs, ["p1", "100.64.0.1"])


def downs(shell: Shell) -> list[str]:
    return [call.removeprefix(DOWN) for call in shell.calls if call.startswith(DOWN)]


def test_jobs_of_an_earlier_start_end_once(pod: Shell) -> None:
    assert run(pod) == 0
    assert downs(pod) == ["tailrack: the pod started again"]
    assert 'scontrol update jobid=7 admincomment={"cause":"node p1 stopped and started again"}' in pod.calls
    assert (run(pod), len(downs(pod))) == (0, 1), "slurmd alone restarted"
    container_start(pod, 2000)
    assert (run(pod), len(downs(pod))) == (0, 2)


def test_a_pod_whose_jobs_run_or_without_jobs_and_a_new_pod_stay_as_they_are(pod: Shell) -> None:
    pod.write("proc/77/cmdline", "slurmstepd: [7.batch]")
    pod.write("proc/77/status", "Uid:\t0\t0\t0\t0\n")
    assert (run(pod), downs(pod)) == (0, [])
    pod.path("proc/77/cmdline").unlink()
    pod.stub("squeue")
    container_start(pod, 2000)
    assert (run(pod), downs(pod)) == (0, [])
    container_start(pod, 3000)
    pod.stub("scontrol", 'if [ "$1" = ping ]; then echo "head is UP"; else exit 1; fi')
    assert run(pod) == 0


def test_slurmd_waits_for_a_slurmctld_that_does_not_answer(pod: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    pod.stub("scontrol", 'echo "munge: Expired credential" >&2; exit 1')
    assert run(pod) == 1
    assert "slurmd waits for slurmctld at 100.64.0.1: munge: Expired credential" in capsys.readouterr().err
    has_node(pod)
    assert (run(pod), len(downs(pod))) == (0, 1)
