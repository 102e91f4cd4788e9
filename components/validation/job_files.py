"""Files that a measurement's jobs bring along: one program, and bash.

The head node's installed program makes them from its own files. Jobs do not use the program that is installed on their
nodes: a pool may have another release.
"""

from __future__ import annotations

from functools import cache

from components.node.pack import ROOT, packed

# The program's name in the folder of a job.
PROGRAM = "tailrack.pyz"
# Its commands: the module whose `main` takes the arguments, or `MODULE:FUNCTION`.
COMMANDS = {
    "all-reduce": "components.validation.all_reduce_perf_cpu",
    "fabric-facts": "components.validation.fabric_facts",
    "fetch-problem": "components.node.fetch:print_problem",
    "gpu-check": "components.validation.gpu_speed.node",
    "gpus-in-use": "components.validation.preflight.foreign",
    "nccl-table": "components.validation.nccl_tests:print_table",
    "preflight": "components.validation.preflight.main",
    "storage-job": "components.validation.storage_job",
    "storage-node": "components.validation.storage_node",
}
MEASUREMENT, _TRAINING = "components/measurement_jobs", "examples/training"
# The files of jobs, by path: the installed program has them.
FILES = (
    *(f"{MEASUREMENT}/{name}" for name in ("prepare.sh", "program.sh", "rank.sh")),
    *(f"{_TRAINING}/{name}" for name in ("benchmark.py", "ranks.py")),
)


@cache
def job_program() -> bytes:
    """Return the program for jobs, a file that any Python runs."""
    return packed(COMMANDS)


def text_of(path: str) -> str:
    """Return the text of one of FILES."""
    return (ROOT / path).read_text(encoding="utf-8")


def build_files(environment: str) -> dict[str, str]:
    """Return the files that build nccl-tests on the share, by name; none without an environment.

    environment   the variables of program.sh, as shell assignments
    """
    return {"program.sh": text_of(f"{MEASUREMENT}/program.sh"), "build.env": environment} if environment else {}


def training_files() -> dict[str, str]:
    """Return the training benchmark's programs, by name."""
    return {name: text_of(f"{_TRAINING}/{name}") for name in ("benchmark.py", "ranks.py")}
