"""The parts of NVIDIA's driver API that a measurement of one GPU needs, through ctypes: the driver brings libcuda."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p

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

    def to_gpu(self, target: c_uint64, source: c_void_p, size: int) -> None:
        self._call("cuMemcpyHtoDAsync_v2", target, source, c_size_t(size), self.stream)

    def to_host(self, target: c_void_p, source: c_uint64, size: int) -> None:
        self._call("cuMemcpyDtoHAsync_v2", target, source, c_size_t(size), self.stream)

    def inside(self, target: c_uint64, source: c_uint64, size: int) -> None:
        self._call("cuMemcpyDtoDAsync_v2", target, source, c_size_t(size), self.stream)

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
