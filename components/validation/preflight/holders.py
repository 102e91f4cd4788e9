"""Which processes hold a job's GPUs when it begins: nobody's should. Run by itself it is a script of Slurm's prolog.

A process that computes has a GPU's device file open, and that of CUDA's memory (daemons that watch GPUs have the first
alone): where there is none outside of a job, no driver is asked. But CUDA opens the files of all GPUs, so nvidia-smi
has to say which of them it uses. Where it does not, the files are the last resort, and the finding says so.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from components.validation.preflight.findings import Finding, finding, plain
from components.validation.preflight.foreign import FOREIGN
from components.validation.preflight.gres import device_numbers
from components.validation.preflight.smi import bus_address

_GPU = re.compile(r"/dev/nvidia(\d{1,3})", re.ASCII)
_MEMORY = "/dev/nvidia-uvm"
_STEP = "slurmstepd"
_MINOR = re.compile(r"^Device Minor:\s*(\d{1,3})\s*$", re.MULTILINE | re.ASCII)
# A script of the prolog is ended after 20 s, and the node drained for it.
ASK_SECONDS = 12
# As root, nvidia-smi makes device files that a container was not given on purpose.
NOBODY = 65534
QUERY = ("nvidia-smi", "--query-compute-apps=gpu_bus_id,pid", "--format=csv,noheader")
Ask = Callable[[], str | None]


def ask() -> str | None:
    """What nvidia-smi says of processes that compute; None where it does not answer."""
    root = os.geteuid() == 0
    path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    try:
        done = subprocess.run(
            QUERY, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=ASK_SECONDS,
            env={"PATH": path, "LC_ALL": "C"}, user=NOBODY if root else None, group=NOBODY if root else None,
            extra_groups=[] if root else None,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def computing(text: str, root: Path = Path("/")) -> dict[str, set[int]] | None:
    """Return process numbers to the GPUs that they compute on, of nvidia-smi's answer; None where it is none."""
    found: dict[str, set[int]] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        bus, _, pid = (word.strip() for word in line.partition(","))
        information = root / "proc/driver/nvidia/gpus" / bus_address(bus) / "information"
        try:
            minor = _MINOR.search(information.read_text(errors="replace"))
        except OSError:
            minor = None
        if minor is None or not pid.isdecimal():
            return None
        found.setdefault(pid, set()).add(int(minor[1]))
    return found


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


def check_holders(devices: set[int], root: Path = Path("/"), ask: Ask = ask) -> Iterator[Finding]:
    """One finding a process."""
    held = holders(devices, root)
    if not held:
        return
    answer = ask()
    used = None if answer is None else computing(answer, root)
    for pid, files in sorted(held.items()):
        gpus = files if used is None else sorted(used.get(pid, set()) & devices)
        if not gpus:
            continue
        does = "uses" if used is not None else "has the device file of"
        why = "" if used is not None else " (nvidia-smi does not say which GPU it uses)"
        yield finding(
            "error", FOREIGN, f"process {pid} ({_command(pid, root)}) of {_owner(pid, root)} {does} GPU "
            f"{', '.join(map(str, gpus))} and is in no job{why}",
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


def main(arguments: list[str], root: Path = Path("/"), ask: Ask = ask) -> int:
    """`0,3`: the job's GPUs, as Slurm numbers them (SLURM_JOB_GPUS): by their place in this node's gres.conf."""
    own = device_numbers(root)
    places = [int(word) for word in arguments[0].split(",") if word.isascii() and word.isdecimal()] if arguments else []
    found = list(check_holders({own[place] for place in places if place < len(own)}, root, ask))
    for each in found:
        sys.stdout.write(f"next: {each['remedy']}\n{each['seen']}\n")
    return 1 if found else 0
