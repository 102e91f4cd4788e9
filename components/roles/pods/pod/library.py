"""The library with which a pod's programs use the tailnet (templates/tailnet.c). The pod compiles it itself."""

import hashlib
import os
import re
from collections.abc import Sequence

from components.node import files, kernel
from components.node.failure import Failure
from components.node.log import note
from components.node.run import attempt
from components.roles.pods.pod.saved import PROXY, SOCKET

_FOLDER = "/usr/local/lib/tailrack"
SOURCE = f"{_FOLDER}/tailnet.c"
CONF = "/etc/tailrack/tailnet-preload"
# The path of the current library, for programs of root.
_CURRENT = "/etc/tailrack/tailnet-library"
# Options of gcc.
AS_LIBRARY = ("-O2", "-fPIC", "-shared")
_OPTIONS = (*AS_LIBRARY, "-Wl,-z,now")
_LIBRARIES = ("-ldl", "-lpthread")
_OF_ANY_VERSION = re.compile(r"tailnet-[0-9a-f]{12}\.so(\.new)?")
# The lowest uid of users. Services with lower ones do not load the library, except Slurm's, which are root's.
_FIRST_USER = 1000


def library_path(source: str) -> str:
    """Return the path of the library that is built from a source.

    Each version has its own path. Replacing a file that running programs have loaded would change their code.
    """
    return f"{_FOLDER}/tailnet-{hashlib.sha256(source.encode()).hexdigest()[:12]}.so"


def use_library() -> None:
    """Let programs that this one starts use the tailnet. It does nothing on machines with a tailnet interface."""
    if path := (files.read(_CURRENT) or "").strip():
        os.environ["LD_PRELOAD"] = path


def without_library() -> None:
    """Undo `use_library`."""
    os.environ.pop("LD_PRELOAD", None)


def conf_text(address: str) -> str:
    """Return the library's configuration for a pod with this tailnet address."""
    return f"{address} {PROXY} {SOCKET}"


def build_library(source: str, host: str) -> None:
    """Compile the library unless it exists, and remove older ones that no process uses."""
    path = library_path(source)
    if not files.exists(path):
        compile_library(source, SOURCE, path, (*_OPTIONS, *_LIBRARIES), host, named="the library for the tailnet")
        note(f"built {path}")
    files.write(_CURRENT, path)
    remove_unused(path)


def remove_unused(current: str) -> None:
    """Remove libraries of other versions that no process has loaded."""
    others = [f"{_FOLDER}/{name}" for name in files.names_in(_FOLDER) if _OF_ANY_VERSION.fullmatch(name)]
    loaded = _loaded() if others != [current] else None
    for path in others:
        if loaded is not None and path not in (current, *loaded):
            files.remove(path)
            note(f"removed {path}")


def _loaded() -> set[str] | None:
    """Return the files that processes have loaded; None if a process of a user does not show its own.

    Root of a pod cannot see into processes of other accounts.
    """
    loaded: set[str] = set()
    for process in filter(str.isdigit, kernel.names_in("/proc")):
        rows = kernel.read(f"/proc/{process}/maps").splitlines()
        if not rows and _uid(process) >= _FIRST_USER:
            return None
        loaded.update(fields[5] for row in rows if len(fields := row.split(maxsplit=5)) > 5)
    return loaded


def _uid(process: str) -> int:
    """Return the uid of a process; 0 if it has ended."""
    found = re.search(r"^Uid:\t(\d+)", kernel.read(f"/proc/{process}/status"), re.MULTILINE)
    return int(found[1]) if found else 0


def compile_library(
    source: str, at: str, path: str, options: Sequence[str], host: str, *, named: str, needs: str = "gcc"
) -> None:
    """Compile a source, and put the library in place. Programs that have loaded the file before keep that one.

    at        the file for the source
    options   of gcc: SHARED, and perhaps others
    named     what it is, for the error
    needs     what a person may have to repair

    Raises Failure if gcc cannot build it.
    """
    files.write(at, source)
    fresh = f"{path}.new"
    files.remove(fresh)
    on_disk = files.on_disk(fresh), files.on_disk(at)
    # Libraries come after the source that uses them.
    ended = attempt("gcc", "-o", *on_disk, *options, keep_errors=True)
    if not ended.ok:
        files.remove(fresh)
        raise Failure(
            f"gcc cannot build {named}: {ended.errors.strip()[-300:]}",
            f"run 'gcc -shared -fPIC -o /tmp/library.so {at}' on {host}, repair {needs}, then run up again",
        )
    files.set_mode(fresh, 0o755)
    files.rename(fresh, path)
