"""A node that has to be free of jobs: they get time to end, then they are requeued or cancelled."""

import json

import pytest

from components.roles.slurm.slurm.jobs import clear_jobs
from tests.unit.shell import Shell


@pytest.fixture
def node(shell: Shell) -> Shell:
    """A node with job 7, which can be requeued, and jobs 8 and 9, which cannot; 9 is completing."""
    shell.write("jobs", "7 ada RUNNING\n8 bob RUNNING\n9 bob COMPLETING\n")
    shell.stub("squeue", f'cat "{shell.root}/jobs"')
    shell.stub("scancel", f': >"{shell.root}/jobs"')
    for job in (7, 8):
        entry = {"job_id": job, "job_state": ["RUNNING"], "requeue": job == 7, "batch_flag": True}
        shell.write(str(job), json.dumps({"jobs": [entry]}))
    shell.stub("scontrol", f'[ "$1 $2" != "show job" ] || cat "{shell.root}/$3"')
    return shell


def clear(shell: Shell, limit: float = 1) -> bool:
    shell.hurry()
    return shell.call(clear_jobs, "a1", "tailrack: leaves the cluster", limit)


def test_a_node_without_jobs_is_drained_and_asked_once(node: Shell) -> None:
    node.write("jobs", "")
    assert clear(node)
    assert node.calls == [
        "scontrol update nodename=a1 state=drain reason=tailrack: leaves the cluster",
        "squeue -h -w a1 -o %A",
    ]


def test_jobs_that_do_not_end_are_requeued_and_those_that_cannot_be_are_cancelled(node: Shell) -> None:
    assert clear(node)
    calls = [call for call in node.calls[1:] if not call.startswith(("squeue", "scontrol show"))]
    assert sorted(call for call in calls if "admincomment" in call) == [
        f'scontrol update jobid={job} admincomment={{"cause":"node a1 had to be free"}}' for job in (7, 8)
    ]
    assert sorted(call for call in calls if "admincomment" not in call) == [
        "scancel 8",
        "scontrol notify 8 job 8 is cancelled: node a1 had to be free, and the job cannot be requeued",
        "scontrol requeue 7",
    ]


def test_jobs_that_stay_and_a_controller_without_an_answer_are_no_success(node: Shell) -> None:
    node.stub("scancel")
    assert not clear(node)
    node.stub("squeue", "exit 1")
    assert not clear(node)


def test_jobs_get_their_time_and_few_questions_are_asked_meanwhile(node: Shell) -> None:
    node.stub("squeue", f'[ "$(wc -l <"{node.root}/calls")" -ge 20 ] || echo 7')
    assert clear(node, limit=60)
    assert "scontrol requeue 7" not in node.calls
