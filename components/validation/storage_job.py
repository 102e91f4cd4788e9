"""Measure all targets from the job's first node: `storage-job`, in the folder with the job's `plan.json`.

Nodes measure a target of their own at the same time, and a shared one in turn, so that each figure is the node's own.
The next node reads the file that a node wrote: its page cache cannot have it. Two large files exist at most.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from components.validation import storage_node
from components.validation.job_files import PROGRAM
from components.validation.storage_figures import line_of, read_storage

PLAN = "plan.json"
# The nodes' lines, in one file for each target: the output of a job with many nodes would lose its middle.
FIGURES_FILE = "figures"
_CLEAN_SECONDS = 60


def main(_: Sequence[str]) -> int:
    """Measure, write the nodes' lines, and return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan = json.loads(Path(PLAN).read_text(encoding="utf-8"))
    for target in plan["targets"]:
        nodes = [node for node in plan["nodes"] if node in target["nodes"]]
        if not nodes:
            continue
        try:
            if target["shared"]:
                _in_turn(target, nodes, plan["step_seconds"])
            else:
                _srun(target, nodes, storage_node.ALL, plan["step_seconds"])
        finally:
            _clean(target, nodes)
    return 0


def _in_turn(target: Mapping[str, Any], nodes: Sequence[str], seconds: float) -> None:
    wrote: list[str] = []
    for node in nodes:
        if _srun(target, [node], storage_node.WRITE_PART, seconds):
            if wrote:
                _srun(target, [node], storage_node.READ_PART, seconds, wrote[-1])
            wrote.append(node)
    if wrote:
        # The first node reads what the last one wrote; a node alone reads its own file.
        _srun(target, wrote[:1], storage_node.READ_PART, seconds, wrote[-1])


def _srun(target: Mapping[str, Any], nodes: Sequence[str], part: str, seconds: float, source: str = "") -> bool:
    """Run a part on nodes, write their lines, and return whether all of them measured."""
    settings = {name: target[name] for name in storage_node.Target.__dataclass_fields__}
    command = [
        *("srun", "--mpi=none", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1"),
        *(f"--nodelist={','.join(nodes)}", "--kill-on-bad-exit=0", "--cpu-bind=none"),
        *("/usr/bin/python3", PROGRAM, "storage-node", json.dumps(settings), part, *([source] if source else [])),
    ]
    problem = "its task ended without a figure"
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    try:
        output, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.terminate()
        problem, output = f"its task did not end within {seconds:.0f} s: does the storage answer there?", ""
        try:
            output, _ = process.communicate(timeout=_CLEAN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
    except SystemExit:
        process.terminate()
        raise
    figures = read_storage(output)
    silent = [node for node in nodes if (node, target["name"]) not in figures] if part != storage_node.CLEAN else []
    lines = [output, *(line_of(node, target["name"], problem=problem) + "\n" for node in silent)]
    with Path(f"{FIGURES_FILE}.{target['name']}").open("a", encoding="utf-8") as file:
        file.writelines(lines)
    return not silent and not any(result.problem for result in figures.values())


def _clean(target: Mapping[str, Any], nodes: Sequence[str]) -> None:
    """Remove what is left of a target: on this node at once, because a cancelled job gets no new tasks."""
    own = storage_node.Target.from_json(target)
    if own.place == storage_node.IN_SCRATCH:
        return  # Slurm's epilog removes a job's scratch folder, also when the job is killed
    try:
        storage_node.remove(own.folder())
    except storage_node.Problem:  # a mount that this node does not have
        _srun(target, nodes[:1], storage_node.CLEAN, _CLEAN_SECONDS)
