"""Find processes that hold a job's GPUs when it starts. As a program it is a script of Slurm's prolog.

A process that computes has a GPU's device file and CUDA's memory file open (monitoring daemons open only the first).
Without such a process outside of jobs, the driver is not queried. CUDA opens the files of all GPUs, so nvidia-smi has
to report which GPU a process uses; if it fails, the open files decide.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from components.validation.preflight.findings import Finding, finding, plain
from components.validation.preflight.foreign import FOREIGN
from components.validation.preflight.gpu_health import bus_address
from components.validation.this_node import text_of

_GPU = re.compile(r"/dev/nvidia(\d{1,3})", re.ASCII)
MINOR = re.compile(r"^Device Minor:\s*(\d{1,3})\s*$", re.MULTILINE | re.ASCII)
# After 20 s a script of the prolog is killed and the node is drained.
ASK_SECONDS = 12
# As root, nvidia-smi would create device files that a container must not have.
NOBODY = 65534
QUERY = ("nvidia-smi", "--query-compute-apps=gpu_bus_id,pid", "--format=csv,noheader")
Ask = Callable[[], str | None]
GRES = Path("etc/tailrack/gres.conf")
MOST = 256


def ask() -> str | None:
    """Return nvidia-smi's list of computing processes; None if it fails."""
    root = os.geteuid() == 0
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    try:
        process = subprocess.run(
            QUERY, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=ASK_SECONDS,
            env={"PATH": path, "LC_ALL": "C"}, user=NOBODY if root else None, group=NOBODY if root else None,
            extra_groups=[] if root else None,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout if process.returncode == 0 else None


def computing(text: str, root: Path = Path("/")) -> dict[str, set[int]] | None:
    """Return the GPUs by process number, from nvidia-smi's answer; None if the answer is malformed."""
    gpus: dict[str, set[int]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        bus, _, pid = (word.strip() for word in line.partition(","))
        information = root / "proc/driver/nvidia/gpus" / bus_address(bus) / "information"
        minor = MINOR.search(text_of(information))
        if minor is None or not pid.isdecimal():
            return None
        gpus.setdefault(pid, set()).add(int(minor[1]))
    return gpus


def in_a_job(pid: str, root: Path) -> bool:
    """Whether a process is in a job: by its cgroup, or because one of its ancestors is root's slurmstepd."""
    depth = 0
    while pid.isdecimal() and int(pid) > 1 and depth < 100:
        folder = root / "proc" / pid
        if re.search(r"/job_\d", text_of(folder / "cgroup")):
            return True
        if text_of(folder / "comm").startswith("slurmstepd") and _uid(folder) == 0:
            return True
        parent = re.search(r"^PPid:\s*(\d+)$", text_of(folder / "status"), re.MULTILINE)
        pid, depth = parent[1] if parent else "0", depth + 1
    return False


def holders(devices: set[int], root: Path = Path("/")) -> dict[str, list[int]]:
    """Return the GPUs among `devices` that processes outside of jobs may use, by process number."""
    gpus: dict[str, list[int]] = {}
    for folder in (root / "proc").glob("[0-9]*"):
        open_gpus, uses_memory = set(), False
        with contextlib.suppress(OSError):
            for entry in os.scandir(folder / "fd"):
                with contextlib.suppress(OSError):
                    # Tens of thousands of entries: a Path for each would take longer than all the rest.
                    path = os.readlink(entry.path)  # noqa: PTH115
                    if not path.startswith("/dev/nvidia"):
                        continue
                    uses_memory |= path == "/dev/nvidia-uvm"
                    if (gpu := _GPU.fullmatch(path)) and int(gpu[1]) in devices:
                        open_gpus.add(int(gpu[1]))
        if open_gpus and uses_memory and not in_a_job(folder.name, root):
            gpus[folder.name] = sorted(open_gpus)
    return gpus


def check_holders(devices: set[int], root: Path = Path("/"), ask: Ask = ask) -> Iterator[Finding]:
    held = holders(devices, root)
    if not held:
        return
    answer = ask()
    used = None if answer is None else computing(answer, root)
    for pid, files in sorted(held.items()):
        gpus = files if used is None else sorted(used.get(pid, set()) & devices)
        if not gpus:
            continue
        verb = "uses" if used is not None else "has the device file of"
        note = "" if used is not None else " (nvidia-smi does not report which GPU it uses)"
        folder = root / "proc" / pid
        command = plain(text_of(folder / "comm")) or "ended"
        yield finding(
            "error", FOREIGN, f"process {pid} ({command}) of {_owner(_uid(folder))} {verb} GPU "
            f"{', '.join(map(str, gpus))} and is in no job{note}",
            f"find its owner ('ps -o user,pid,etime,cmd -p {pid}' on the node) and end it; then resume the node",
        )  # fmt: skip


def _uid(folder: Path) -> int | None:
    """Return the uid of a process; None if it has ended."""
    try:
        return folder.stat().st_uid
    except OSError:
        return None


def _owner(uid: int | None) -> str:
    try:
        return "an ended process" if uid is None else pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def main(arguments: list[str], root: Path = Path("/"), ask: Ask = ask) -> int:
    """Check a job's GPUs. The argument is SLURM_JOB_GPUS."""
    devices = devices_of(arguments[0], device_numbers(root)) if arguments else []
    items = list(check_holders({*devices}, root, ask))
    for item in items:
        sys.stdout.write(f"next: {item['remedy']}\n{item['seen']}\n")
    return 1 if items else 0


def devices_of(job_gpus: str, devices: Sequence[int]) -> list[int]:
    """Return the numbers of a job's device files from SLURM_JOB_GPUS, such as `0,3`: places in gres.conf."""
    places = [int(word) for word in job_gpus.strip().split(",") if word.isascii() and word.isdecimal()]
    return [devices[place] for place in places if place < len(devices)]


def device_numbers(root: Path = Path("/")) -> list[int]:
    """Return the numbers of their device files in Slurm's order; empty without GPUs."""
    return device_numbers_in(text_of(root / GRES))


def device_numbers_in(text: str) -> list[int]:
    """Return the numbers of the device files that lines of gres.conf name, in Slurm's order."""
    devices: list[int] = []
    for numbers in re.findall(r"^[^#\n]*\bName=gpu\b[^\n]*\bFile=/dev/nvidia\[?([0-9,-]+)\]?", text, re.MULTILINE):
        for part in numbers.split(","):
            first, _, last = part.partition("-")
            if first.isdecimal() and (last or first).isdecimal():
                devices += range(int(first), min(int(last or first), MOST) + 1)
    return sorted(set(devices))
