"""Compile a shared library on a pod, for this machine's C library and Slurm."""

from __future__ import annotations

from collections.abc import Sequence

from components.node import files
from components.node.failure import Failure
from components.node.run import attempt

SHARED = ("-O2", "-fPIC", "-shared")


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
