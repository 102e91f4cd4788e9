"""The job's program of a node: measure its GPUs, each in a process of its own with a limit, and run dcgmi if wanted.

A GPU that another process uses is not measured. A GPU much slower than its neighbours is measured again.

The argument is JSON with `dcgm_level` (0: no dcgmi) and `dcgm_seconds`, the time for all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import median
from typing import Any, cast

from components.node.waiting import wait_until
from components.validation.gpu_speed.judge import FIGURES, SLOW, like, measured
from components.validation.gpu_speed.one_gpu import measure
from components.validation.preflight import dcgm
from components.validation.preflight.foreign import used
from components.validation.preflight.gpu_health import MOST_CHARACTERS, Reading, line, read_states
from components.validation.this_node import node_name, output_of

LIMIT_SECONDS = 55
_SMI_SECONDS, _GPU_SECONDS = 20, 15
Measure = Callable[[str, str], dict[str, Any]]
# Seconds until a killed process counts as one that the kernel cannot end. It is left behind.
_END_SECONDS = 2


def query() -> str:
    """Return the output of `nvidia-smi -q -x`; empty without an answer."""
    return output_of("nvidia-smi", "-q", "-x", seconds=_SMI_SECONDS) or ""


def readings(measure: Measure = measure) -> list[Reading]:
    """Return the reading of each GPU that jobs can use."""
    end = time.monotonic() + LIMIT_SECONDS
    output = apart(query, _SMI_SECONDS + 1)
    states = read_states(output or "")
    busy = apart(in_use, _SMI_SECONDS) or {}
    result = [_reading(state, measure, busy.get(state.bus, ""), end) for state in states]
    slow = [number for number, reading in enumerate(result) if _is_slow(reading, result)]
    for number in slow:
        if end - time.monotonic() > _GPU_SECONDS / 2:
            result[number] = _better(result[number], _reading(states[number], measure, "", end))
    return result


def in_use() -> dict[str, str]:
    """Return a sentence for each GPU that other processes use, by its address as sysfs has it."""
    return {gpu.bus.lower()[-12:]: str(gpu) for gpu in used() or []}


def _reading(reading: Reading, measure: Measure, busy: str, end: float) -> Reading:
    limit = min(_GPU_SECONDS, end - time.monotonic())
    if busy:
        return replace(reading, doubts=(f"not measured: {busy}"[:MOST_CHARACTERS],))
    if limit < 1:
        return replace(reading, doubts=("not measured: the time for this node's GPUs is over",))
    figures = apart(lambda: measure(reading.bus, reading.uuid), limit)
    if figures is None:
        return replace(reading, doubts=(f"the measurement did not end within {limit:.0f} s",))
    copying, multiplying = figures.pop("copying", None), figures.pop("multiplying", None)
    if copying:
        figures |= {"width": copying["width"], "gen": copying["gen"], "loaded": True}
    reasons = [reason for state_then in (copying, multiplying) if state_then for reason in state_then["throttled"]]
    figures["throttled"] = tuple(dict.fromkeys([*(() if copying else reading.throttled), *reasons]))
    figures |= {figure.name: round(figures[figure.name], 1) for figure in FIGURES if figure.name in figures}
    figures["doubts"] = tuple(text[:MOST_CHARACTERS] for text in figures["doubts"])
    return replace(reading, **figures)


def _is_slow(reading: Reading, readings: Sequence[Reading]) -> bool:
    near = like(reading, readings)
    return any(
        value < SLOW * median(others)
        for figure in FIGURES
        for value in measured([reading], figure.name)
        if (others := measured(near, figure.name))
    )


def _better(first: Reading, second: Reading) -> Reading:
    """Return the better figures of two measurements of one GPU."""
    best = {figure.name: max(measured([first, second], figure.name), default=None) for figure in FIGURES}
    return replace(first, **cast("dict[str, Any]", best))


def apart(work: Callable[[], Any], limit: float) -> Any:
    """Return the result of a function, which JSON can carry; None if it raises or does not end in time."""
    with tempfile.TemporaryFile() as file:
        process = os.fork()
        if process == 0:
            _child(work, file.fileno())
        if not wait_until(lambda: _ended(process), limit):
            _kill(process)
            return None
        file.seek(0)
        with suppress(ValueError):
            return json.loads(file.read() or b"null")
        return None


def _child(work: Callable[[], Any], result: int) -> None:
    status = 1
    try:
        os.setsid()
        # A process that is left behind must not keep the job's output open.
        null = os.open(os.devnull, os.O_RDWR)
        for stream in range(3):
            os.dup2(null, stream)
        os.write(result, json.dumps(work()).encode())
        status = 0
    finally:
        os._exit(status)


def _ended(process: int) -> bool:
    return os.waitpid(process, os.WNOHANG)[0] != 0


def _kill(process: int) -> None:
    with suppress(OSError):
        os.killpg(process, signal.SIGKILL)
    wait_until(lambda: _ended(process), _END_SECONDS)


def main(arguments: Sequence[str]) -> int:
    """Print the lines. Always return 0: slow GPUs are no failure of the job."""
    settings = json.loads(arguments[0])
    end = time.monotonic() + float(settings["dcgm_seconds"])
    node = node_name()
    # One write for each line, so that lines of other nodes do not come between.
    sys.stdout.write(line(node, readings()) + "\n")
    sys.stdout.flush()
    if not settings["dcgm_level"]:
        return 0
    return dcgm.diagnose([json.dumps({**settings, "dcgm_seconds": max(10.0, end - time.monotonic())})])
