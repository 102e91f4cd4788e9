"""Processes that use a node's GPUs before a measurement or between its runs.

As a program it prints one line for each GPU in use, or one if none is in use or nvidia-smi fails. In a container it
cannot see processes outside, only their use of the GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from components.validation.preflight.findings import Finding, finding, plain, unjudged
from components.validation.this_node import node_name, output_of

FOREIGN = "GPU in use"
# An idle GPU shows some hundred MiB of its driver and 0 % utilization.
MOST_MIB, MOST_PERCENT = 1024, 5
COMMAND_SECONDS = 20
_REMEDY = (
    "find its owner ('nvidia-smi' and 'ps -o user,pid,etime,cmd -p PID' on the node) and end it; it slows jobs too"
)
# Output lines of a node with no GPU in use, or with no answer (wording.py reads them).
NOTHING, NOT_KNOWN = "nothing is on its GPUs", "nvidia-smi does not say what is on its GPUs"
Ask = Callable[..., str | None]


@dataclass(frozen=True)
class Used:
    """A GPU in use: its bus address, utilization in percent, MiB, and its processes as `pid name (MiB)`."""

    bus: str
    percent: int
    mib: int
    processes: tuple[str, ...]

    def __str__(self) -> str:
        by = f" by {', '.join(self.processes)}" if self.processes else " by processes that are not visible from here"
        return f"GPU {self.bus} is {self.percent} % busy with {self.mib} MiB in use{by}"


def ask(*options: str) -> str | None:
    """Return the output of nvidia-smi; None if it fails."""
    command = ("nvidia-smi", *options, "--format=csv,noheader,nounits")
    return output_of(*command, seconds=COMMAND_SECONDS, must_succeed=True)


def used(ask: Ask = ask) -> list[Used] | None:
    """Return the GPUs in use; None if nvidia-smi fails or prints another format."""
    processes: dict[str, list[str]] = {}
    apps = ask("--query-compute-apps=gpu_bus_id,pid,process_name,used_memory")
    for bus, pid, name, mib in _rows(apps or "", 4):
        processes.setdefault(bus, []).append(plain(f"{pid} {name} ({mib} MiB)"))
    gpus = []
    rows = list(_rows(ask("--query-gpu=pci.bus_id,utilization.gpu,memory.used") or "", 3))
    for bus, percent, mib in rows:
        busy, memory = (int(word) if word.isascii() and word.isdigit() else 0 for word in (percent, mib))
        if processes.get(bus) or busy > MOST_PERCENT or memory > MOST_MIB:
            gpus.append(Used(plain(bus), busy, memory, tuple(processes.get(bus, ()))))
    return gpus if gpus or (rows and apps is not None) else None


def _rows(text: str, width: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        fields = [word.strip() for word in line.split(",")]
        if len(fields) >= width and ":" in fields[0]:
            # A process name may contain a comma.
            yield [*fields[: width - 2], ", ".join(fields[width - 2 : -1]), fields[-1]]


def sentences(gpus: list[Used]) -> list[str]:
    """Return a sentence for each GPU in use, or one for all GPUs that the same processes use."""
    groups: dict[tuple[str, ...], list[Used]] = {}
    for gpu in gpus:
        # Compare without the memory, which differs by GPU. Invisible processes may be different ones.
        users = tuple(word.rpartition(" (")[0] for word in gpu.processes) or (gpu.bus,)
        groups.setdefault(users, []).append(gpu)
    return [str(group[0]) if len(group) == 1 else _group_sentence(users, group) for users, group in groups.items()]


def _group_sentence(users: tuple[str, ...], group: list[Used]) -> str:
    percent, mib = max(gpu.percent for gpu in group), max(gpu.mib for gpu in group)
    names = ", ".join(gpu.bus for gpu in group)
    return f"GPUs {names} are up to {percent} % busy with up to {mib} MiB in use by {', '.join(users)}"


def check_foreign(gpus: list[Used] | None) -> Iterator[Finding]:
    """Check for GPUs in use while the job of all nodes has them exclusively."""
    if gpus is None:
        yield unjudged(FOREIGN, NOT_KNOWN, "run nvidia-smi on the node")
    for sentence in sentences(gpus or []):
        yield finding("warning", FOREIGN, sentence, _REMEDY)


def main(_: Sequence[str]) -> int:
    """Print all lines in one write, so that lines of other nodes do not come between."""
    name = node_name()
    gpus = used()
    lines = [NOT_KNOWN] if gpus is None else sentences(gpus) or [NOTHING]
    sys.stdout.write("".join(f"{name}: {sentence}\n" for sentence in lines))
    return 0
