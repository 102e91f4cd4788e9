"""The command `pod-cut-off`, on a pod: end steps that have lost the connection to their srun.

    pod-cut-off LIBRARY

The start of tailscaled runs it. A tailscaled in userspace loses every TCP connection with its process. srun does not
notice: it would wait in vain for output, and end with status 0. LIBRARY leads Slurm's commands through the tailnet.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from components.node import files
from components.node.run import attempt
from components.node.state import STATE_DIR
from components.node.waiting import wait_until

_STEP = re.compile(r"slurmstepd: \[([0-9]+)\.([0-9]+|interactive)\]")
_SRUN = re.compile(r"\bSrunHost:Pid=([^:\s]+):")
_TAILNET_SECONDS = 300
_LIMIT = 40
_MESSAGE = "the pod's connection to the tailnet was restarted, and output of {step} was lost: the step is ended"


def main(arguments: Sequence[str]) -> int:
    """End the steps that are there now, once the tailnet works again."""
    (library,) = arguments
    steps = steps_here()
    if steps and wait_until(lambda: attempt("tailscale", "wait", "--timeout", "5s", quiet=True).ok, _TAILNET_SECONDS):
        for step in steps:
            end_if_cut_off(step, library)
    return 0


def steps_here() -> list[str]:
    """Return the steps on this machine that srun has started, as Slurm writes them."""
    numbers = (path.name for path in Path(files.on_disk("/proc")).iterdir() if path.name.isdecimal())
    found = (_STEP.match(files.read_process(number, "cmdline")) for number in numbers)
    return sorted(f"{step[1]}.{step[2]}" for step in found if step)


def end_if_cut_off(step: str, library: str) -> None:
    """End a step whose srun runs on another machine."""
    environment = {"LD_PRELOAD": library}
    shown = attempt("scontrol", "show", "step", step, limit=_LIMIT, environment=environment)
    srun = _SRUN.search(shown.output)
    if srun is None or srun[1] == (files.read(f"{STATE_DIR}/node-name") or "").strip():
        return
    text = _MESSAGE.format(step=step)
    sys.stderr.write(f"{text}\n")
    job = step.partition(".")[0]
    attempt("scontrol", "notify", job, text, limit=_LIMIT, environment=environment, quiet=True)
    attempt("scancel", step, limit=_LIMIT, environment=environment)
