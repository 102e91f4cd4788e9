"""Measure one GPU: copies between its memory and the machine's, copies inside its memory, and matrices."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from components.validation.gpu_speed.cuda import Cuda, CudaError
from components.validation.gpu_speed.matrix import Matrix
from components.validation.gpu_speed.reading import read_states

_HOST_BYTES = 256 << 20
# Larger than all caches of a GPU.
_MOST_BYTES = 1 << 30
_ROUND_SECONDS = 0.2
_LEAST_ROUNDS, _MOST_SECONDS = 2, 4.0


def measure(bus: str, uuid: str) -> dict[str, Any]:
    """Return the figures of one GPU: GB/s, TFLOP/s, its state under load, and the reasons for missing figures.

    Call it in a new process: the choice of the GPU is for the whole process.
    """
    # The driver then starts only this GPU.
    os.environ.update(CUDA_VISIBLE_DEVICES=uuid, CUDA_DEVICE_ORDER="PCI_BUS_ID")
    _stay_near(bus)
    figures: dict[str, Any] = {"doubts": []}
    try:
        gpu = Cuda(bus)
        figures |= _copies(gpu, uuid)
        figures["memory"] = _inside(gpu)
    except CudaError as error:
        figures["doubts"].append(str(error))
        return figures
    try:
        figures |= _matrices(gpu, uuid)
    except CudaError as error:
        figures["doubts"].append(f"matrix rate not measured: {error}")
    return figures


def _stay_near(bus: str) -> None:
    """Run on the CPUs next to the GPU, because the path from others is slower."""
    with suppress(OSError, ValueError):
        text = Path(f"/sys/bus/pci/devices/{bus}/local_cpulist").read_text(encoding="ascii")
        ranges = [part.partition("-") for part in text.strip().split(",")]
        near = {number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)}
        if near & os.sched_getaffinity(0):
            os.sched_setaffinity(0, near & os.sched_getaffinity(0))


def _copies(gpu: Cuda, uuid: str) -> dict[str, Any]:
    size = min(_HOST_BYTES, gpu.free // 4)
    host, memory = gpu.pinned(size), gpu.memory(size)
    best = {"host_to_gpu": 0.0, "gpu_to_host": 0.0}

    def once() -> None:
        for name, launch in (
            ("host_to_gpu", lambda: gpu.to_gpu(memory, host, size)),
            ("gpu_to_host", lambda: gpu.to_host(host, memory, size)),
        ):
            best[name] = max(best[name], size / gpu.each(launch, _ROUND_SECONDS) / 1e9)

    state = _under_load(once, uuid)
    gpu.release(memory)
    return {**best, "copying": state}


def _inside(gpu: Cuda) -> float:
    """Return the bandwidth of its memory in GB/s, reading and writing."""
    size = min(_MOST_BYTES, gpu.free // 4)
    source, target = gpu.memory(size), gpu.memory(size)
    seconds = min(gpu.each(lambda: gpu.inside(target, source, size), _ROUND_SECONDS) for _ in range(_LEAST_ROUNDS))
    gpu.release(source)
    gpu.release(target)
    return 2 * size / seconds / 1e9


def _matrices(gpu: Cuda, uuid: str) -> dict[str, Any]:
    matrix = Matrix(gpu)
    best = [0.0]

    def once() -> None:
        best[0] = max(best[0], matrix.operations / gpu.each(matrix.launch, _ROUND_SECONDS) / 1e12)

    state = _under_load(once, uuid)
    return {"matrix": best[0], "matrix_type": matrix.type, "multiplying": state}


def _under_load(once: Callable[[], None], uuid: str) -> dict[str, Any] | None:
    """Repeat a load until nvidia-smi has answered. Return the GPU's state meanwhile; None without an answer."""
    end = time.monotonic() + _MOST_SECONDS
    with tempfile.TemporaryFile() as file:
        # The clocks and the link first reach their state under load.
        once()
        command = ["nvidia-smi", "-q", "-x", "-i", uuid]
        try:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.DEVNULL)
        except OSError:
            process = None
        rounds = 1
        while rounds < _LEAST_ROUNDS or (process and process.poll() is None and time.monotonic() < end):
            once()
            rounds += 1
        if process and process.poll() is None:
            process.kill()
            return None
        file.seek(0)
        states = read_states(file.read().decode("utf-8", "replace"))
    return asdict(states[0]) if len(states) == 1 else None
