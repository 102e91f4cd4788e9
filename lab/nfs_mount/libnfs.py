"""libnfs, the library: its structures, and the types of its functions."""

import ctypes


class Stat(ctypes.Structure):
    """struct nfs_stat_64."""

    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            *("dev", "ino", "mode", "nlink", "uid", "gid", "rdev", "size", "blksize", "blocks"),
            *("atime", "mtime", "ctime", "atime_ns", "mtime_ns", "ctime_ns", "used"),
        )
    ]


class Statvfs(ctypes.Structure):
    """struct nfs_statvfs_64."""

    _fields_ = [
        (f"f_{name}", ctypes.c_uint64)
        for name in (
            *("bsize", "frsize", "blocks", "bfree", "bavail", "files"),
            *("ffree", "favail", "fsid", "flag", "namemax"),
        )
    ]


class Timeval(ctypes.Structure):
    """struct timeval."""

    _fields_ = [("seconds", ctypes.c_long), ("microseconds", ctypes.c_long)]


class Dirent(ctypes.Structure):
    """The head of struct nfsdirent."""


Dirent._fields_ = [("next", ctypes.POINTER(Dirent)), ("name", ctypes.c_char_p)]


def load_libnfs() -> ctypes.CDLL:
    """Return libnfs with the types of non-int arguments and results."""
    lib = ctypes.CDLL("libnfs.so.14")
    lib.nfs_init_context.restype = ctypes.c_void_p
    lib.nfs_readdir.restype = ctypes.POINTER(Dirent)
    lib.nfs_get_error.restype = ctypes.c_char_p
    return lib
