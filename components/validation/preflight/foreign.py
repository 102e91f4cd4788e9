"""What uses a node's GPUs before a measurement begins, or between its runs: nothing should.

Run by itself it prints a line for each GPU that is in use, or one that says that none is, or that nvidia-smi does not
say. Asked as a plain user; of processes outside of a container
that this runs in, nothing but what they take of a GPU can be seen.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from components.validation.preflight.findings import Finding, finding, plain, unjudged

FOREIGN = "GPU in use"
# A GPU that nobody uses has some hundred MiB of its driver's, and is busy by 0 %.
MOST_MIB, MOST_PERCENT = 1024, 5
COMMAND_SECONDS = 20
_REMEDY = (
    "find out whose it is ('nvidia-smi' and 'ps -o user,pid,etime,cmd -p PID' on the node) and end it; jobs lose the "
    "GPU to it as well"
)
# Lines of a node, beside those of its GPUs in use (wording.py reads them).
NOTHING, NOT_KNOWN = "nothing is on its GPUs", "nvidia-smi does not say what is on its GPUs"
Ask = Callable[..., str | None]


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


def ask(*words: str) -> str | None:
    """What nvidia-smi prints; None where it does not answer."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *words, "--format=csv,noheader,nounits"],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def used(ask: Ask = ask) -> list[Used] | None:
    """The GPUs of this node that something uses; None where nvidia-smi does not say, or says it otherwise."""
    processes: dict[str, list[str]] = {}
    apps = ask("--query-compute-apps=gpu_bus_id,pid,process_name,used_memory")
    for bus, pid, name, mib in _rows(apps or "", 4):
        processes.setdefault(bus, []).append(plain(f"{pid} {name} ({mib} MiB)"))
    found = []
    rows = list(_rows(ask("--query-gpu=pci.bus_id,utilization.gpu,memory.used") or "", 3))
    for bus, percent, mib in rows:
        busy, taken = (int(word) if word.isascii() and word.isdigit() else 0 for word in (percent, mib))
        if processes.get(bus) or busy > MOST_PERCENT or taken > MOST_MIB:
            found.append(Used(plain(bus), busy, taken, tuple(processes.get(bus, ()))))
    return found if found or (rows and apps is not None) else None


def _rows(text: str, width: int) -> Iterator[list[str]]:
    for line in text.splitlines():
        words = [word.strip() for word in line.split(",")]
        if len(words) >= width and ":" in words[0]:
            # A process may have a comma in its name.
            yield [*words[: width - 2], ", ".join(words[width - 2 : -1]), words[-1]]


def sentences(found: list[Used]) -> list[str]:
    """Return a sentence for each GPU in use, or one for all GPUs that the same processes use."""
    groups: dict[tuple[str, ...], list[Used]] = {}
    for each in found:
        # Their memory differs by GPU. Processes that cannot be seen from here may be different ones.
        users = tuple(word.rpartition(" (")[0] for word in each.processes) or (each.bus,)
        groups.setdefault(users, []).append(each)
    return [str(group[0]) if len(group) == 1 else _of_all(users, group) for users, group in groups.items()]


def _of_all(users: tuple[str, ...], group: list[Used]) -> str:
    percent, mib = max(each.percent for each in group), max(each.mib for each in group)
    names = ", ".join(each.bus for each in group)
    return f"GPUs {names} are up to {percent} % busy with up to {mib} MiB in use by {', '.join(users)}"


def check_foreign(found: list[Used] | None) -> Iterator[Finding]:
    """A GPU that something uses while the job of all nodes holds them alone."""
    if found is None:
        yield unjudged(FOREIGN, NOT_KNOWN, "run nvidia-smi on the node")
    for sentence in sentences(found or []):
        yield finding("warning", FOREIGN, sentence, _REMEDY)


def main() -> int:
    """Print the lines in one write, so that those of other nodes do not come between."""
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname().split(".")[0]
    found = used()
    lines = [NOT_KNOWN] if found is None else sentences(found) or [NOTHING]
    sys.stdout.write("".join(f"{name}: {each}\n" for each in lines))
    return 0
