"""The units of mounts, and the watch over them.

The record has lines `unit PATH`, `folder PATH` for each folder that did not exist, and `stale PATH` for a mount that
still has its former settings.
"""

import stat
from pathlib import PurePosixPath

from components.node import files, folders, systemd
from components.node.failure import Failure
from components.node.log import STATE_DIR
from components.node.run import attempt, run
from components.roles.storage.mounts.probe import LIST, Wanted, answers, is_mounted
from components.roles.storage.share.mount import Mounted, mount_unit
from components.validation.preflight.storage import RESULTS

RECORD = f"{STATE_DIR}/mounts"
# Seconds for a mount, in which programs that use it wait; also for systemd to unmount.
_MOUNT_SECONDS = 30
PROGRAM = "/usr/local/sbin/tailrack-mounts"
# A node that has, or had, mounts has one of these.
INSTALLED = (PROGRAM, LIST, RECORD)


def recorded(kind: str = "unit") -> list[str]:
    """Return the paths in the record: those whose units this role made, or of another kind."""
    return [line.partition(" ")[2] for line in files.lines(RECORD) if line.startswith(f"{kind} ")]


def write_units(mount: Wanted) -> None:
    """Write the units of a mount and make its mount point. Raises Failure if something else is there."""
    from components.roles.storage.share.host import conflict

    path = mount.path
    if path not in recorded():
        if taken := conflict(path):
            raise Failure(
                f"{path} is {taken} on this machine",
                f"write another path for it in tailrack:storage.mounts, or type: present if {path} is the right mount",
            )
        files.add_line(RECORD, f"unit {path}")
    if not is_mounted(path):
        _make_folders(path)
    given = mount.options.split(",") if mount.options else []
    hard = [] if {"soft", "softerr"} & {*given} else ["hard"]
    # No program of another server may run with other rights here, and none of its files is a device.
    words = ["ro" if mount.read_only else "rw", "nosuid", "nodev", "_netdev", *hard, *given]
    options, description = ",".join(dict.fromkeys(words)), f"{mount.source} at {path}"
    units = Mounted(path, mount.source, options, _MOUNT_SECONDS, description, mount.tailnet)
    former = files.read(mount_unit(path))
    if former is not None and former.rstrip("\n") != units.text():
        files.add_line(RECORD, f"stale {path}")
    units.write()


def _make_folders(path: str) -> None:
    """Make the mount point, and record the folders that did not exist."""
    for folder in [*reversed(PurePosixPath(path).parents), PurePosixPath(path)]:
        if folders.kind_of(str(folder)) != stat.S_IFDIR:
            files.add_line(RECORD, f"folder {folder}")
            files.make_folder(str(folder))


def renew(path: str) -> bool:
    """Unmount a mount with former settings; the next use mounts it again. Return False while it is in use."""
    if not _unmount(path):
        return False
    files.remove_lines(RECORD, lambda line: line == f"stale {path}")
    return True


def take_away(path: str, *, lazily: bool = False) -> bool:
    """Unmount and remove a mount. Return False while programs use it, unless `lazily`: then they keep open files."""
    name = systemd.name_of_path(path)
    # A restart of the machine must not mount it again.
    attempt("systemctl", "--root=/", "disable", "-q", f"{name}.automount", quiet=True)
    if not _unmount(path, lazily=lazily):
        return False
    systemd.retire(f"{name}.automount", f"{name}.mount")
    files.remove_lines(RECORD, lambda line: line in (f"unit {path}", f"stale {path}"))
    _remove_folders()
    return True


def _unmount(path: str, *, lazily: bool = False) -> bool:
    """Unmount if nothing uses it. A server that does not answer blocks its users anyway, so do not wait for them."""
    if not is_mounted(path):
        return True
    if lazily or not answers(path):
        run("umount", "-l", path)
        return True
    attempt("systemctl", "stop", f"{systemd.name_of_path(path)}.mount", limit=2 * _MOUNT_SECONDS)
    return not is_mounted(path)


def _remove_folders() -> None:
    """Remove folders that this role made and no mount needs any more, unless they have files."""
    needed = [PurePosixPath(path) for path in recorded()]
    for folder in sorted(recorded("folder"), reverse=True):
        if not any(path.is_relative_to(folder) for path in needed):
            files.remove_if_empty(folder)
            files.remove_lines(RECORD, lambda line, folder=folder: line == f"folder {folder}")  # type: ignore[misc]


def remove_watch() -> None:
    """Remove everything of it."""
    for path in (PROGRAM, LIST, f"/{RESULTS}", RECORD):
        files.remove(path)
