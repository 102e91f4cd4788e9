"""Become a program that can run no other program.

slurmdbd executes any file that a request with the munge key names. No setting of systemd prevents that: a system call
filter without execve would prevent the start of slurmdbd too, and NoExecPaths=/ does not cover what other settings of
the unit mount, such as its /tmp (measured with systemd 257).
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import struct
from collections.abc import Sequence

# By machine: AUDIT_ARCH_* (linux/audit.h), and the numbers of execve and execveat.
_MACHINES = {"x86_64": (0xC000003E, 59, 322), "aarch64": (0xC00000B7, 221, 281)}
# System calls of x32, a second set of x86-64, have numbers from here on.
_X32 = 0x40000000
# The kernel allows an execve whose file name lies here, below everything that programs have in memory. After it,
# nothing lies here any more.
_ADDRESS = 0x200000
_SET_NO_NEW_PRIVS, _SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
# Offsets in struct seccomp_data (linux/seccomp.h); both machines are little-endian.
_NUMBER, _ARCHITECTURE, _NAME_LOW, _NAME_HIGH = 0, 4, 16, 20


def seccomp_filter(machine: str, address: int) -> bytes:
    """Return a seccomp filter that allows no execve but one whose file name lies at an address.

    Raises KeyError for a machine whose numbers it does not have.
    """
    architecture, execve, execveat = _MACHINES[machine]
    # Each: operation, value, instructions to skip if the comparison holds, and if it does not.
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
    return b"".join(struct.pack("HBBI", does, yes, no, value) for does, value, yes, no in instructions)


def main(command: Sequence[str]) -> int:
    """Become a command: the path of a program, and its arguments. Raises OSError if the kernel refuses a part of it."""
    libc = ctypes.CDLL(None, use_errno=True)

    def must(result: int | None, what: str) -> None:
        if result in (-1, None, 2**64 - 1):
            number = ctypes.get_errno()
            raise OSError(number, f"{what}: {os.strerror(number)}")

    libc.mmap.restype = ctypes.c_size_t
    libc.mmap.argtypes = [ctypes.c_size_t, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x100000  # MAP_FIXED_NOREPLACE
    must(libc.mmap(_ADDRESS, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0), "mmap")
    name = os.fsencode(command[0]) + b"\0"
    ctypes.memmove(_ADDRESS, name, len(name))

    code = seccomp_filter(platform.machine(), _ADDRESS)
    kept = ctypes.create_string_buffer(code, len(code))
    # struct sock_fprog: the number of instructions, and their address.
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(kept)))
    libc.prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    must(libc.prctl(_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    must(libc.prctl(_SET_SECCOMP, _FILTER, ctypes.addressof(program), 0, 0), "seccomp")

    def strings(words: Sequence[bytes]) -> ctypes.Array[ctypes.c_char_p]:
        return (ctypes.c_char_p * (len(words) + 1))(*words, None)

    variables = [key + b"=" + value for key, value in os.environb.items()]
    libc.execve.argtypes = [ctypes.c_void_p] * 3
    must(libc.execve(_ADDRESS, strings([os.fsencode(word) for word in command]), strings(variables)), command[0])
    return 1
