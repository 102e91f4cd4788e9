"""Put the program in place on a machine: one folder per version, which appears whole and survives a power cut.

It runs as root and gets the program, a zip archive, from a pipe: the file belongs to the login that brought it. Python
compiles a module when root first imports it. On the head node, whose commands users run too, role `tailrack`
compiles all of them, while no node waits.
"""

import os
from pathlib import Path

FOLDER = "/usr/local/lib/tailrack/program"
# The file that is written last, after all others are on the disk. start.sh reads it.
MARK = "complete"


def install(archive: bytes, version: str, folder: str = FOLDER) -> str:
    """Unpack an archive unless this version is complete, and return its folder. Exits with words for people."""
    try:
        return _install(archive, version, folder)
    except OSError as error:
        # No report of a step is possible yet.
        raise SystemExit(
            f"tailrack: cannot install the program in {folder}: {error.strerror}\nnext: make room or make it writable "
            f"(see 'df -h {folder}' and 'findmnt -T {folder}' on the machine), then run up again"
        ) from None


def _install(archive: bytes, version: str, folder: str) -> str:
    place = Path(folder, version)
    if _is_complete(place):
        return str(place)
    # Steps import this module for `sync_file_system` alone.
    import io
    import shutil
    import tempfile
    import zipfile

    os.umask(0o022)
    Path(folder).mkdir(parents=True, exist_ok=True)
    fresh = tempfile.mkdtemp(dir=folder, prefix=f".{version}.")
    try:
        with zipfile.ZipFile(io.BytesIO(archive)) as packed:
            packed.extractall(fresh)
        Path(fresh).chmod(0o755)
        sync(fresh)
        # The mark says that all other files are on the disk.
        Path(fresh, MARK).write_text(f"{version}\n", encoding="ascii")
        sync(fresh)
        _put(fresh, place)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    sync(folder)
    return str(place)


def sync(folder: str) -> None:
    """Put everything in the file system of a folder on its disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file_system(descriptor)
    finally:
        os.close(descriptor)


def sync_file_system(descriptor: int) -> None:
    """Put everything in one file system on its disk. os.sync waits for all of them, also for a dead NFS server."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True).syncfs(descriptor) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _is_complete(place: Path) -> bool:
    try:
        return (place / MARK).read_text(encoding="ascii").strip() == place.name
    except (OSError, ValueError):
        return False


def _put(fresh: str, place: Path) -> None:
    """Rename the new folder into place; replace an incomplete one."""
    try:
        Path(fresh).rename(place)
    except OSError:
        if _is_complete(place):
            return  # another step of the same moment was faster
        import shutil
        import tempfile

        rest = tempfile.mkdtemp(dir=place.parent, prefix=f".{place.name}.rest.")
        place.rename(rest)
        shutil.rmtree(rest, ignore_errors=True)
        Path(fresh).rename(place)
