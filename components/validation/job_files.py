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
    "gpu-check": "components.validation.gpu_speed.node",
    "gpus-in-use": "components.validation.preflight.foreign",
    "nccl-table": "components.validation.nccl_output:print_table",
    "preflight": "components.validation.preflight.main",
    "storage-job": "components.validation.storage_job",
    "storage-node": "components.validation.storage_node",
}
_MEASUREMENT, _TRAINING = "components/measurement", "examples/training"
# The files of jobs, by path: the installed program has them.
FILES = (
    *(f"{_MEASUREMENT}/{name}" for name in ("prepare.sh", "program.sh", "rank.sh")),
    "components/steps/fetch.sh",
    *(f"{_TRAINING}/{name}" for name in ("benchmark.py", "ranks.py")),
)


@cache
def job_program() -> bytes:
    """Return the program for jobs, a file that any Python runs."""
    return packed(COMMANDS)


def prepare_script() -> str:
    """Return the batch script of the job that prepares a measurement."""
    return _text(f"{_MEASUREMENT}/prepare.sh")


def rank_files() -> dict[str, str]:
    """Return the script that runs one rank of a measurement on GPUs, by name."""
    return {"rank.sh": _text(f"{_MEASUREMENT}/rank.sh")}


def build_files(environment: str) -> dict[str, str]:
    """Return the files that build nccl-tests on the share, by name; none without an environment.

    environment   the variables of program.sh, as shell assignments
    """
    if not environment:
        return {}
    script = f"{_text('components/steps/fetch.sh')}\n{_text(f'{_MEASUREMENT}/program.sh')}"
    return {"program.sh": script, "build.env": environment}


def training_files() -> dict[str, str]:
    """Return the training benchmark's programs, by name."""
    return {name: _text(f"{_TRAINING}/{name}") for name in ("benchmark.py", "ranks.py")}


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")
