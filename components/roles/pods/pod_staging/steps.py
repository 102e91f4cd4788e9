"""A pod's side: Slurm's steps there, rsync for the head node, and the end of steps that have lost their srun.

    pod-cut-off LIBRARY

The start of tailscaled runs it. A tailscaled in userspace loses every TCP connection with its process. srun does not
notice: it would wait in vain for output, and end with status 0. LIBRARY leads Slurm's commands through the tailnet.

    pod-files

The head node runs it to bring or fetch a job's folder. Its stdin begins with a line of JSON; the rest is rsync's
protocol, in which the head node names the user and the path.
"""

import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from components.node import files, kernel, run
from components.node.run import attempt
from components.node.waiting import wait_until
from components.slurm_commands import slurm
from components.validation import this_node

# The steps that srun has started; the number after `+` is that of a part of a heterogeneous job.
_OF_SRUN = re.compile(r"([0-9]+|interactive)(?:\+[0-9]+)?")
_SOCKET = re.compile(r"socket:\[([0-9]+)\]")
# 127.0.0.2 in /proc/net/tcp: this end of a connection to the pod's own address (roles/pods/pod/templates/tailnet.c).
_FROM_HERE = "0200007F"
_ESTABLISHED = "01"
_TAILNET_SECONDS = 300
_LIMIT = 40
_MESSAGE = "the pod's connection to the tailnet was restarted, and output of {step} was lost: the step is ended"
_MOST_BYTES = 4096
_ARGUMENT = re.compile(r"--server|--sender|-[A-Za-z0-9.]+|--[a-z][a-z-]*(=[A-Za-z0-9,+-]*)?|\.")
# Slurm ends a job's processes and fetches its results at the same time. KillWait is at most 600 s.
_END_SECONDS = 620


def steps() -> Iterator[tuple[str, int, str]]:
    """Yield the process, the job and the name of each step on this pod."""
    return this_node.steps(Path(files.on_disk("/")))


def end_cut_off_steps(arguments: Sequence[str]) -> int:
    """End the steps that are cut off now, once the tailnet works again."""
    (library,) = arguments
    cut_off = steps_cut_off()
    if cut_off and wait_until(lambda: attempt("tailscale", "wait", "--timeout", "5s", quiet=True).ok, _TAILNET_SECONDS):
        for step in cut_off:
            _end(step, library)
    return 0


def steps_cut_off() -> list[str]:
    """Return the steps on this pod whose srun runs on another machine, as Slurm writes them.

    An srun on this pod is connected by loopback, which no restart cuts. (Slurm knows the host of an srun by its host
    name, which on a pod is the container's, so it does not help.)
    """
    here = _sockets_to_itself()
    of_srun = ((process, job, step[1]) for process, job, name in steps() if (step := _OF_SRUN.fullmatch(name)))
    return sorted(f"{job}.{name}" for process, job, name in of_srun if here.isdisjoint(_sockets_of(process)))


def _sockets_to_itself() -> set[str]:
    """Return the inodes of the sockets that are connected to the pod's own address."""
    rows = [row.split() for name in ("tcp", "tcp6") for row in kernel.read(f"/proc/net/{name}").splitlines()[1:]]
    return {row[9] for row in rows if row[1].partition(":")[0].endswith(_FROM_HERE) and row[3] == _ESTABLISHED}


def _sockets_of(process: str) -> set[str]:
    """Return the inodes of a process's sockets."""
    folder, inodes = f"/proc/{process}/fd", set()
    for name in kernel.names_in(folder):
        with suppress(OSError):
            inodes.update(_SOCKET.findall(str(Path(files.on_disk(folder), name).readlink())))
    return inodes


def _end(step: str, library: str) -> None:
    """Say on the terminal of the job's srun why a step ends, and end it."""
    environment = {"LD_PRELOAD": library}
    text = _MESSAGE.format(step=step)
    sys.stderr.write(f"{text}\n")
    number, _, name = step.partition(".")
    # The last task of an array has the array's own number.
    rows = slurm.squeue("%A %i", "-j", number, limit=_LIMIT, environment=environment) or ()
    job = next((title for array, title in rows if array == number), None)
    if job is None:
        return
    slurm.notify(job, text, environment)
    slurm.end(f"{job}.{name}", environment=environment)


def run_rsync(_: Sequence[str]) -> int:
    """Become rsync."""
    header = json.loads(_first_line())
    arguments = [str(argument) for argument in header["arguments"]]
    if arguments[:1] != ["--server"] or not all(map(_ARGUMENT.fullmatch, arguments)):
        sys.stderr.write("this is not a request of rsync\n")
        return 2
    if "--sender" in arguments:
        job = int(header["job"])
        wait_until(lambda: not runs(job), _END_SECONDS)
    environment = {"PATH": run.PATH, "HOME": "/", "LC_ALL": "C.UTF-8"}
    return os.execvpe("rsync", ["rsync", *arguments], environment)  # noqa: S606


def _first_line() -> bytes:
    # One byte at a time: the rest is rsync's.
    line = b""
    while len(line) < _MOST_BYTES and (byte := os.read(0, 1)) not in (b"", b"\n"):
        line += byte
    return line


def runs(job: int) -> bool:
    """Return whether a step of a job has not ended on this machine."""
    return any(of == job for _, of, _ in steps())
