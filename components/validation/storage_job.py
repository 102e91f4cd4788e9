"""Measure all targets from the job's first node: `storage-job`, in the folder with the job's `plan.json`.

Nodes measure a target of their own at the same time, and a shared one in turn, so that each figure is the node's own.
The next node reads the file that a node wrote: its page cache cannot have it. Two large files exist at most.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from components.validation import storage_node
from components.validation.job_files import PROGRAM
from components.validation.storage_figures import StorageFigures, line_of, read_storage
from components.validation.this_node import remove
from components.validation.untrusted import read

PLAN = "plan.json"
# The nodes' lines, in one file for each target: the output of a job with many nodes would lose its middle.
FIGURES_FILE = "figures"
_CLEAN_SECONDS = 60


def main(_: Sequence[str]) -> int:
    """Measure, write the nodes' lines, and return the exit status."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    plan = json.loads(Path(PLAN).read_text(encoding="utf-8"))
    for number, data in enumerate(plan["targets"]):
        target = read(storage_node.Target, data)
        nodes = [node for node in plan["nodes"] if node in target.ranks]
        if not nodes:
            continue
        target = _with_ranks(target, nodes)
        task = Task(target, Path(f"{FIGURES_FILE}.{number}"), plan["step_seconds"])
        try:
            wrote = _in_turn(task, nodes) if target.shared else _at_once(task, nodes)
            if target.checkpoint and wrote:
                seconds = storage_node.CHECKPOINT_SECONDS + _CLEAN_SECONDS
                all_ranks = replace(task, target=_with_ranks(target, wrote), seconds=seconds)
                if not any(figures.problem for figures in all_ranks.run(wrote, storage_node.SAVE).values()):
                    all_ranks.run(wrote, storage_node.RESTORE)
        finally:
            _clean(task, nodes)
    return 0


def _with_ranks(target: storage_node.Target, nodes: Sequence[str]) -> storage_node.Target:
    """Return a target for the ranks of some of its nodes."""
    return replace(target, ranks={node: target.ranks[node] for node in nodes})


def _at_once(task: Task, nodes: Sequence[str]) -> list[str]:
    """Measure the nodes' own storage, and return the nodes without a problem."""
    return [node for node, figures in task.run(nodes, storage_node.ALL).items() if not figures.problem]


def _in_turn(task: Task, nodes: Sequence[str]) -> list[str]:
    """Measure shared storage, and return the nodes that wrote to it."""
    wrote: list[str] = []
    for node in nodes:
        figures = task.run([node], storage_node.WRITE_PART)[node]
        if figures.read_only:
            task.run([node], storage_node.READ_PART, storage_node.EXISTING)
        elif not figures.problem:
            if wrote:
                task.run([node], storage_node.READ_PART, wrote[-1])
            wrote.append(node)
    if wrote:
        # The first node reads what the last one wrote; a node alone reads its own file.
        task.run(wrote[:1], storage_node.READ_PART, wrote[-1])
    return wrote


@dataclass(frozen=True)
class Task:
    """Measure a target of the plan by srun.

    file      receives the nodes' lines
    seconds   limit of one part
    """

    target: storage_node.Target
    file: Path
    seconds: float

    def run(self, nodes: Sequence[str], part: str, source: str = "") -> dict[str, StorageFigures]:
        """Run a part on nodes, write their lines to the file, and return their figures."""
        name, settings = self.target.name, json.dumps(asdict(self.target))
        command = [
            *("srun", "--mpi=none", f"--nodes={len(nodes)}", f"--ntasks={len(nodes)}", "--ntasks-per-node=1"),
            *(f"--nodelist={','.join(nodes)}", "--kill-on-bad-exit=0", "--cpu-bind=none"),
            *("/usr/bin/python3", PROGRAM, "storage-node", settings, part, *([source] if source else [])),
        ]
        output, problem = _output(command, self.seconds)
        reported = read_storage(output)
        silent = [node for node in nodes if (node, name) not in reported]
        output += "".join(line_of(node, name, problem=problem) + "\n" for node in silent)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(output)
        return {node: figures for (node, _), figures in read_storage(output).items()}


def _output(command: Sequence[str], seconds: float) -> tuple[str, str]:
    """Return the output of a command, and the problem of a node without a line in it."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, errors="replace")
    try:
        return process.communicate(timeout=seconds)[0], "its task ended without a figure"
    except subprocess.TimeoutExpired:
        process.terminate()
        try:
            output, _ = process.communicate(timeout=_CLEAN_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output = ""
        return output, f"its task did not end within {seconds:.0f} s: does the storage answer there?"
    except SystemExit:
        process.terminate()
        raise


def _clean(task: Task, nodes: Sequence[str]) -> None:
    """Remove what is left of a target: on this node at once, because a cancelled job gets no new tasks."""
    if task.target.place == storage_node.IN_SCRATCH:
        return  # Slurm's epilog removes a job's scratch folder, also when the job is killed
    try:
        remove(task.target.folder())
    except storage_node.Problem:  # a mount that this node does not have
        replace(task, seconds=_CLEAN_SECONDS).run(nodes[:1], storage_node.CLEAN)
