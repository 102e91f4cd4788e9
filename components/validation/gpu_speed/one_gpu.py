"""Measure one GPU: copies between its memory and the machine's, copies inside its memory, and matrices.

The rate of matrices, by cuBLAS if the machine has it, shows a GPU whose clocks are held down. Calls go to NVIDIA's
driver API through ctypes: the driver brings libcuda.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from dataclasses import asdict
from pathlib import Path
from typing import Any

from components.validation.preflight.gpu_health import read_states

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
# More launches than this could wait for a free place in the driver's queue.
_MOST_LAUNCHES = 500


class CudaError(Exception):
    """A function of the driver failed."""


class Cuda:
    """One GPU, by its PCI address, with a context, a stream and two events."""

    def __init__(self, bus: str) -> None:
        try:
            self._library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError("the driver's library libcuda.so.1 cannot be loaded") from error
        self._device = c_int()
        context, self.stream, self._start, self._end = c_void_p(), c_void_p(), c_void_p(), c_void_p()
        self._call("cuInit", c_uint(0))
        self._call("cuDeviceGetByPCIBusId", byref(self._device), c_char_p(bus.encode()))
        self._call("cuDevicePrimaryCtxRetain", byref(context), self._device)
        self._call("cuCtxSetCurrent", context)
        self._call("cuStreamCreate", byref(self.stream), c_uint(1))
        for event in (self._start, self._end):
            self._call("cuEventCreate", byref(event), c_uint(0))

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            text = c_char_p()
            self._library.cuGetErrorName(c_int(status), byref(text))
            raise CudaError(f"{name} failed: {(text.value or str(status).encode()).decode('ascii', 'replace')}")

    @property
    def capability(self) -> tuple[int, int]:
        """Return the compute capability, such as (9, 0)."""
        values = c_int(), c_int()
        for value, attribute in zip(values, (_MAJOR, _MINOR), strict=True):
            self._call("cuDeviceGetAttribute", byref(value), c_int(attribute), self._device)
        return values[0].value, values[1].value

    @property
    def free(self) -> int:
        """Return the free bytes of its memory."""
        free, total = c_size_t(), c_size_t()
        self._call("cuMemGetInfo_v2", byref(free), byref(total))
        return free.value

    def memory(self, size: int) -> c_uint64:
        """Return a buffer in its memory."""
        pointer = c_uint64()
        self._call("cuMemAlloc_v2", byref(pointer), c_size_t(size))
        return pointer

    def release(self, pointer: c_uint64) -> None:
        self._call("cuMemFree_v2", pointer)

    def pinned(self, size: int) -> c_void_p:
        """Return a buffer in the machine's memory that the GPU reads and writes directly."""
        pointer = c_void_p()
        self._call("cuMemHostAlloc", byref(pointer), c_size_t(size), c_uint(0))
        return pointer

    def copy(self, way: str, target: c_uint64 | c_void_p, source: c_uint64 | c_void_p, size: int) -> None:
        """Start a copy from the host to the GPU (HtoD), back (DtoH), or inside the GPU's memory (DtoD)."""
        self._call(f"cuMemcpy{way}Async_v2", target, source, c_size_t(size), self.stream)

    def seconds(self, launch: Callable[[], None], count: int = 1) -> float:
        """Return how long the GPU takes for `count` launches."""
        self._call("cuEventRecord", self._start, self.stream)
        for _ in range(count):
            launch()
        self._call("cuEventRecord", self._end, self.stream)
        self._call("cuEventSynchronize", self._end)
        milliseconds = c_float()
        self._call("cuEventElapsedTime", byref(milliseconds), self._start, self._end)
        return milliseconds.value / 1000

    def each(self, launch: Callable[[], None], seconds: float) -> float:
        """Return how long one launch takes, as the mean of as many launches as fit into some seconds."""
        self.seconds(launch)
        once = max(self.seconds(launch), 1e-6)
        count = max(1, min(int(seconds / once), _MOST_LAUNCHES))
        return self.seconds(launch, count) / count


# The newest first. A release newer than the driver fails, and the next is tried.
_RELEASES = (13, 12, 11)
_FOLDERS = (
    "usr/local/cuda/lib64",
    "usr/local/cuda-*/lib64",
    "usr/local/cuda*/targets/*/lib",
    "usr/lib/*-linux-gnu",
    # Wheels.
    "usr/lib/python3*/dist-packages/nvidia/cu*/lib",
    "usr/local/lib/python3*/*-packages/nvidia/cu*/lib",
)
SIZE = 8192
_PIECE = 8 << 20
_TYPES = {"bf16": 14, "fp16": 2}  # CUDA_R_16BF, CUDA_R_16F
_COMPUTE_FLOAT32, _DEFAULT = 68, -1


def libraries(root: Path = Path("/")) -> Iterator[str]:
    """Yield names and paths of cuBLAS, the linker's own first."""
    for release in _RELEASES:
        yield f"libcublas.so.{release}"
        for folder in _FOLDERS:
            yield from sorted(map(str, root.glob(f"{folder}/libcublas.so.{release}")))


class Matrix:
    """cuBLAS, with matrices in the GPU's memory. Raises CudaError if the machine has none that works.

    type   `bf16`, or `fp16` on a GPU that is older than Ampere
    """

    def __init__(self, gpu: Cuda) -> None:
        self.type = "bf16" if gpu.capability >= (8, 0) else "fp16"
        self._library, self._handle = _opened()
        self._check(self._library.cublasSetStream_v2(self._handle, gpu.stream), "cublasSetStream")
        # Three matrices must fit.
        self.size = SIZE if gpu.free > 8 * SIZE**2 else SIZE // 2
        self._matrices = [gpu.memory(2 * self.size**2) for _ in range(3)]
        for matrix in self._matrices[:2]:
            _fill(gpu, matrix, 2 * self.size**2)

    @property
    def operations(self) -> float:
        """Return the floating-point operations of one multiplication."""
        return 2.0 * self.size**3

    def launch(self) -> None:
        """Start one multiplication."""
        one, zero, size = c_float(1), c_float(0), c_int(self.size)
        left, right, product = self._matrices
        kind = c_int(_TYPES[self.type])
        status = self._library.cublasGemmEx(
            self._handle, c_int(0), c_int(0), size, size, size, byref(one),
            left, kind, size, right, kind, size, byref(zero), product, kind, size,
            c_int(_COMPUTE_FLOAT32), c_int(_DEFAULT),
        )  # fmt: skip
        self._check(status, "cublasGemmEx")

    @staticmethod
    def _check(status: int, name: str) -> None:
        if status:
            raise CudaError(f"{name} failed with status {status}")


def _opened() -> tuple[ctypes.CDLL, c_void_p]:
    failures = []
    for path in libraries():
        try:
            if "/" in path:
                # It needs this one, which the linker may not find beside it.
                ctypes.CDLL(path.replace("libcublas", "libcublasLt"), mode=os.RTLD_GLOBAL)
            library = ctypes.CDLL(path)
        except OSError:
            continue
        handle = c_void_p()
        status = library.cublasCreate_v2(byref(handle))
        if status == 0:
            return library, handle
        failures.append(f"{Path(path).name} fails with status {status}")
    raise CudaError(", ".join(dict.fromkeys(failures)) or "there is no cuBLAS on this machine")


def _fill(gpu: Cuda, matrix: c_uint64, size: int) -> None:
    """Fill a matrix with numbers between 0.5 and 2 of either sign: zeros would need less power than real data."""
    data = bytearray(os.urandom(_PIECE))
    data[1::2] = data[1::2].translate(bytes(0x3F | number & 0x80 for number in range(256)))
    piece = gpu.pinned(_PIECE)
    ctypes.memmove(piece, bytes(data), _PIECE)
    for start in range(0, size, _PIECE):
        target = c_uint64(matrix.value + start)
        gpu.seconds(lambda target=target: gpu.copy("HtoD", target, piece, _PIECE))  # type: ignore[misc]


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
            ("host_to_gpu", lambda: gpu.copy("HtoD", memory, host, size)),
            ("gpu_to_host", lambda: gpu.copy("DtoH", host, memory, size)),
        ):
            best[name] = max(best[name], size / gpu.each(launch, _ROUND_SECONDS) / 1e9)

    state = _under_load(once, uuid)
    gpu.release(memory)
    return {**best, "copying": state}


def _inside(gpu: Cuda) -> float:
    """Return the bandwidth of its memory in GB/s, reading and writing."""
    size = min(_MOST_BYTES, gpu.free // 4)
    source, target = gpu.memory(size), gpu.memory(size)
    seconds = min(
        gpu.each(lambda: gpu.copy("DtoD", target, source, size), _ROUND_SECONDS) for _ in range(_LEAST_ROUNDS)
    )
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
