"""The limits of the cgroup that a machine's first process runs in: in a container, those of the container.

The kernel shows a container the processors and the memory of its host (/proc/meminfo), unless LXCFS hides them. Both
versions of cgroups are read, because a host may have either, or one beside the other.
"""

from __future__ import annotations

from collections.abc import Iterator

from components.node import kernel

_ROOT = "/sys/fs/cgroup"


def cpu_limit() -> int | None:
    """Return the whole CPUs that the cgroup may use, at least 1; None if nothing limits them."""
    limits = [_quota(*text.split()) for text in _texts("", "cpu.max")]
    for folder in _folders("cpu"):
        period = kernel.read(f"{folder}/cpu.cfs_period_us").strip()
        limits.append(_quota(kernel.read(f"{folder}/cpu.cfs_quota_us").strip(), period))
    return min((limit for limit in limits if limit is not None), default=None)


def memory_limit_mb() -> int | None:
    """Return the memory in MB that the cgroup may use; None if nothing limits it.

    Version 1 writes a number near 2**63 for no limit, which is more than any machine has.
    """
    texts = [*_texts("", "memory.max"), *_texts("memory", "memory.limit_in_bytes")]
    return min((int(text) >> 20 for text in texts if text.isdecimal()), default=None)


def _quota(quota: str = "", period: str = "", *_rest: str) -> int | None:
    """Return the whole CPUs of a quota in a period. `max` and -1 stand for no quota."""
    if not (quota.isdecimal() and period.isdecimal() and int(period)):
        return None
    return max(int(quota) // int(period), 1)


def _texts(controller: str, name: str) -> Iterator[str]:
    return (kernel.read(f"{folder}/{name}").strip() for folder in _folders(controller))


def _folders(controller: str) -> Iterator[str]:
    """Yield the folders of the first process's cgroup of a controller and of all its parents, the innermost first.

    controller   a controller of version 1; empty for version 2
    """
    for line in kernel.read("/proc/1/cgroup").splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if controller not in controllers.split(",") or not path.startswith("/"):
            continue
        mount = f"{_ROOT}/{controller}" if controller else _ROOT
        parts = path.split("/")[1:]
        # systemd's own scope has its own limits. A path outside of this namespace contains "..".
        parts = [] if ".." in parts else [part for part in parts if part not in ("", "init.scope")]
        # Without its own namespace, a container sees its host's path, but only its own folder, mounted as the root.
        for length in range(len(parts), -1, -1):
            yield "/".join([mount, *parts[:length]])
