"""Which processes hold a job's GPUs when it begins: nobody's should. Run by itself it is a script of Slurm's prolog.

It asks no driver, so it takes milliseconds and cannot hang: who computes has the GPU's device file open, and that of
CUDA's memory. (Daemons that watch GPUs have the first alone.) A process of another job is that job's.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from components.validation.preflight.findings import Finding, finding, plain
from components.validation.preflight.foreign import FOREIGN
from components.validation.preflight.gres import device_numbers

_GPU = re.compile(r"/dev/nvidia(\d{1,3})", re.ASCII)
_MEMORY = "/dev/nvidia-uvm"
_STEP = "slurmstepd"


def in_a_job(pid: str, root: Path) -> bool:
    """Whether a process is in a job: by its cgroup, or because a slurmstepd of root's is above it."""
    seen = 0
    while pid.isdecimal() and int(pid) > 1 and seen < 100:
        folder = root / "proc" / pid
        try:
            if re.search(r"/job_\d", (folder / "cgroup").read_text(errors="replace")):
                return True
            name = (folder / "comm").read_text(errors="replace")
            if name.startswith(_STEP) and folder.stat().st_uid == 0:
                return True
            parent = re.search(r"^PPid:\s*(\d+)$", (folder / "status").read_text(errors="replace"), re.MULTILINE)
        except OSError:
            return False
        pid, seen = parent[1] if parent else "0", seen + 1
    return False


def holders(devices: set[int], root: Path = Path("/")) -> dict[str, list[int]]:
    """Return process numbers, outside of jobs, to the GPUs among `devices` that they compute on."""
    found: dict[str, list[int]] = {}
    for folder in (root / "proc").glob("[0-9]*"):
        held, computes = set(), False
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder / "fd"):
                with contextlib.suppress(OSError):
                    # There are tens of thousands of them, and a Path of each takes longer than all the rest.
                    path = os.readlink(entry.path)  # noqa: PTH115
                    if not path.startswith("/dev/nvidia"):
                        continue
                    computes |= path == _MEMORY
                    if (gpu := _GPU.fullmatch(path)) and int(gpu[1]) in devices:
                        held.add(int(gpu[1]))
        if held and computes and not in_a_job(folder.name, root):
            found[folder.name] = sorted(held)
    return found


def check_holders(devices: set[int], root: Path = Path("/")) -> Iterator[Finding]:
    """One finding a process."""
    for pid, gpus in sorted(holders(devices, root).items()):
        yield finding(
            "error", FOREIGN, f"process {pid} ({_command(pid, root)}) of {_owner(pid, root)} uses GPU "
            f"{', '.join(map(str, gpus))} and is in no job",
            f"ask whose it is ('ps -o user,pid,etime,cmd -p {pid}' on the node) and end it; then resume the node",
        )  # fmt: skip


def _command(pid: str, root: Path) -> str:
    try:
        return plain((root / "proc" / pid / "comm").read_text(errors="replace").strip())
    except OSError:
        return "ended"


def _owner(pid: str, root: Path) -> str:
    try:
        uid = (root / "proc" / pid).stat().st_uid
    except OSError:
        return "nobody any more"
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def main(arguments: list[str], root: Path = Path("/")) -> int:
    """`0,3`: the job's GPUs, as Slurm numbers them (SLURM_JOB_GPUS): by their place in this node's gres.conf."""
    own = device_numbers(root)
    places = [int(word) for word in arguments[0].split(",") if word.isascii() and word.isdecimal()] if arguments else []
    found = list(check_holders({own[place] for place in places if place < len(own)}, root))
    for each in found:
        sys.stdout.write(f"next: {each['remedy']}\n{each['seen']}\n")
    return 1 if found else 0
