"""validate.sh: what it brings back of a job's output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from components.steps import single
from components.validation.nccl_tests import parse
from tests.unit.shell import Shell

TABLE = (Path(__file__).parents[1] / "fixtures/nccl_tests/mpi-cpu-2x1-tcp-eth0.txt").read_text(encoding="utf-8")
START, END = TABLE.partition("#\n")[0], TABLE.partition("#\n")[2]


@pytest.fixture
def brought_back(shell: Shell) -> Any:
    """Run validate.sh with a Slurm whose job has ended and written some output; the script's answer."""

    def run(output: str) -> dict[str, Any]:
        shell.write("written", output)
        shell.stub("getent", f'echo "ada:x:6001:6001::{shell.root}/home:/bin/bash"')
        shell.stub("runuser", 'shift 3; exec "$@"')
        # As a user the script runs only what is in /usr/bin and /bin: Slurm's commands are looked up here instead.
        shell.stub("env", 'while [[ $1 == -i || $1 == *=* ]]; do shift; done; exec "$@"')
        shell.stub("sbatch", f'cp "{shell.root}/written" "${{2#--output=}}"; echo 7')
        job = '{"jobs": [{"job_state": ["COMPLETED"], "exit_code": {"return_code": {"number": 0}}, "nodes": "a1"}]}'
        shell.stub("scontrol", f"""case "$2" in job) echo '{job}' ;; hostnames) echo a1 ;; esac""")
        shell.stub("sinfo")
        header: dict[str, str | int] = {
            "HOST_NAME": "head", "SCOPE": "cloud-a", "RUN_AS": "ada", "JOB_SCRIPT": "#!/bin/bash", "PROGRAM": "pass",
            "RING": "pass", "QUEUE_LIMIT": 1, "RUN_LIMIT": 1,
        }  # fmt: skip
        told = shell.step(single("validate"), header)
        assert told.returncode == 0, told.stderr
        return dict(json.loads(told.stdout))

    return run


def test_an_ordinary_output_comes_back_whole(brought_back: Any) -> None:
    report = brought_back(TABLE)
    assert (report["state"], report["exit_code"], report["nodes"]) == ("COMPLETED", 0, ["a1"])
    assert report["output"] == TABLE


def test_a_long_log_between_ranks_and_table_costs_neither(brought_back: Any) -> None:
    log = "".join(f"log line {number} of a talkative library\n" for number in range(20_000))
    report = brought_back(f"{START}{log}#\n{END}")
    kept = report["output"]
    assert len(kept) < 200_100 < len(log)
    whole = parse(TABLE)
    assert parse(kept) == whole
    assert not whole.problems
    assert whole.rows


def test_what_is_kept_of_a_long_output_is_whole_lines(brought_back: Any) -> None:
    lines = [f"line {number}" for number in range(40_000)]
    kept = brought_back("\n".join(lines) + "\n")["output"].splitlines()
    left_out = kept.index("[the middle of this output is left out]")
    assert kept[:left_out] == lines[:left_out]
    assert kept[left_out + 1 :] == lines[left_out + 1 - len(kept) :]
