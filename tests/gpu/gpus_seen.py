#!/usr/bin/python3
"""Print what a process sees of GPUs: JSON with the bus addresses CUDA names, and the device files that open.

Runs on a machine, as a plain user: a program of root's could make device files by itself.
"""

import ctypes
import glob
import json
import os


def cuda_devices() -> list[str]:
    """Ask the driver's library; nothing where it starts on no device."""
    cuda, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    if cuda.cuInit(0) != 0 or cuda.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    buses = []
    for number in range(count.value):
        text = ctypes.create_string_buffer(32)
        cuda.cuDeviceGetPCIBusId(text, 32, number)
        buses.append(text.value.decode().lower())
    return buses


def files_that_open() -> list[str]:
    """Try every GPU's device file."""
    opened = []
    for path in sorted(glob.glob("/dev/nvidia[0-9]*")):  # noqa: PTH207  needs no more than Python itself
        try:
            os.close(os.open(path, os.O_RDWR))
        except OSError:
            continue
        opened.append(path)
    return opened


if __name__ == "__main__":
    print(json.dumps({"cuda": cuda_devices(), "files": files_that_open()}))
