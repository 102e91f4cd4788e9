"""Multiply matrices with cuBLAS, if the machine has it: the rate shows a GPU whose clocks are held down."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from ctypes import byref, c_float, c_int, c_uint64, c_void_p
from pathlib import Path

from components.validation.gpu_speed.cuda import Cuda, CudaError

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
        gpu.seconds(lambda target=target: gpu.to_gpu(target, piece, _PIECE))  # type: ignore[misc]
