"""Replace this process with a program that cannot run other programs. It is a script for any Python, in one file.

slurmdbd executes any file that a request with the munge key names. No systemd setting prevents that: a system call
filter without execve also prevents the start of slurmdbd, and NoExecPaths=/ does not cover mounts that other settings
of the unit add, such as its /tmp (measured with systemd 257).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
import sys
from collections.abc import Sequence

# For each machine: AUDIT_ARCH_* (linux/audit.h), the numbers of execve and execveat.
_MACHINES = {"x86_64": (0xC000003E, 59, 322), "aarch64": (0xC00000B7, 221, 281)}
# The numbers of x32's system calls, a second set on x86-64, start here.
_X32 = 0x40000000
# The filter allows an execve whose file name is at this address, below the memory that programs use. The execve
# itself unmaps it, so the new program cannot use the exception.
_ADDRESS = 0x200000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
# Offsets in struct seccomp_data (linux/seccomp.h); both machines are little-endian.
_NUMBER, _ARCHITECTURE, _NAME_LOW, _NAME_HIGH = 0, 4, 16, 20


def seccomp_filter(machine: str, address: int) -> bytes:
    """Return a seccomp filter that allows execve only with the file name at `address`.

    Raises KeyError for an unsupported machine.
    """
    architecture, execve, execveat = _MACHINES[machine]
    # Operation, value, instructions to skip if the comparison is true, and if it is false.
    instructions = [
        (_LOAD, _ARCHITECTURE, 0, 0),
        (_JUMP_EQUAL, architecture, 0, 10),
        (_LOAD, _NUMBER, 0, 0),
        (_JUMP_AT_LEAST, _X32, 8, 0),
        (_JUMP_EQUAL, execveat, 7, 0),
        (_JUMP_EQUAL, execve, 1, 0),
        (_RETURN, _ALLOW, 0, 0),
        (_LOAD, _NAME_LOW, 0, 0),
        (_JUMP_EQUAL, address & 0xFFFFFFFF, 0, 3),
        (_LOAD, _NAME_HIGH, 0, 0),
        (_JUMP_EQUAL, address >> 32, 0, 1),
        (_RETURN, _ALLOW, 0, 0),
        (_RETURN, _REFUSE, 0, 0),
    ]
    return b"".join(struct.pack("HBBI", operation, yes, no, value) for operation, value, yes, no in instructions)


def main(command: Sequence[str]) -> int:
    """Replace this process with `command`, a program path and its arguments. Raises OSError if the kernel refuses."""
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int | None, operation: str) -> None:
        if result in (-1, None, 2**64 - 1):
            number = ctypes.get_errno()
            raise OSError(number, f"{operation}: {os.strerror(number)}")

    libc.mmap.restype = ctypes.c_size_t
    libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE
    check(libc.mmap(_ADDRESS, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0), "mmap")
    name = os.fsencode(command[0]) + b"\0"
    ctypes.memmove(_ADDRESS, name, len(name))

    code = seccomp_filter(platform.machine(), _ADDRESS)
    instructions = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: the number of instructions and their address.
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(instructions)))
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    check(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    check(libc.prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(program), 0, 0), "seccomp")

    def null_terminated(items: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
        return (ctypes.c_char_p * (len(items) + 1))(*items, None)

    variables = [key + b"=" + value for key, value in os.environb.items()]
    libc.execve.argtypes = [ctypes.c_void_p] * 3
    arguments = [os.fsencode(argument) for argument in command]
    check(libc.execve(_ADDRESS, null_terminated(arguments), null_terminated(variables)), command[0])
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
