"""What uses a node's GPUs before a measurement begins, or between its runs: nothing should.

Run by itself it prints a line for each GPU that is in use. Asked as a plain user; of processes outside of a container
that this runs in, nothing but what they take of a GPU can be seen.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from components.validation.preflight.findings import Finding, finding, plain

FOREIGN = "GPU in use"
# A GPU that nobody uses has some hundred MiB of its driver's, and is busy by 0 %.
MOST_MIB, MOST_PERCENT = 1024, 5
COMMAND_SECONDS = 20
_REMEDY = (
    "find out whose it is ('nvidia-smi' and 'ps -o user,pid,etime,cmd -p PID' on the node) and end it; jobs lose the "
    "GPU to it as well"
)
Ask = Callable[..., str]


@dataclass(frozen=True)
class Used:
    """A GPU in use: its bus address, percent of the last second or so, MiB, and `pid name (MiB)` of its processes."""

    bus: str
    percent: int
    mib: int
    processes: tuple[str, ...]

    def __str__(self) -> str:
        by = f" by {', '.join(self.processes)}" if self.processes else " by processes that are not seen from here"
        return f"GPU {self.bus} is {self.percent} % busy with {self.mib} MiB in use{by}"


def ask(*words: str) -> str:
    """What nvidia-smi prints; empty where it does not answer."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *words, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout if done.returncode == 0 else ""


def used(ask: Ask = ask) -> list[Used]:
    """The GPUs of this node that something uses. A driver that says nothing, or says it otherwise, names none."""
    processes: dict[str, list[str]] = {}
    for bus, pid, name, mib in _rows(ask("--query-compute-apps=gpu_bus_id,pid,process_name,used_memory"), 4):
        processes.setdefault(bus, []).append(plain(f"{pid} {name} ({mib} MiB)"))
    found = []
    for bus, percent, mib in _rows(ask("--query-gpu=pci.bus_id,utilization.gpu,memory.used"), 3):
        busy, taken = (int(word) if word.isascii() and word.isdigit() else 0 for word in (percent, mib))
        if processes.get(bus) or busy > MOST_PERCENT or taken > MOST_MIB:
            found.append(Used(plain(bus), busy, taken, tuple(processes.get(bus, ()))))
    return found


def _rows(text: str, width: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) >= width:
            # A process may have a comma in its name.
            yield [*words[: width - 2], ", ".join(words[width - 2 : -1]), words[-1]]


def check_foreign(found: list[Used]) -> Iterator[Finding]:
    """A GPU that something uses while the job of all nodes holds them alone."""
    for each in found:
        yield finding("warning", FOREIGN, str(each), _REMEDY)


def main() -> int:
    """Print a line for each GPU in use, in one write, so that those of other nodes do not come between."""
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    sys.stdout.write("".join(f"{name}: {each}\n" for each in used()))
    return 0
