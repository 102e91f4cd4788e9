"""Read from another member's rsync server."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from components.node import files
from components.node.run import Ended, attempt
from components.roles.datasets.account import transfer
from components.roles.datasets.password import USER
from components.roles.datasets.paths import PASSWORD, PORT

_SMALL_SECONDS = 120
# A file that another machine's root could name in any way becomes a plain file of root's.
_SMALL = ("-rt", "--no-links", "--no-devices", "--no-specials", "--chmod=D700,F600", "--delete", "--max-size=512m")


def url(address: str, port: int, path: str) -> str:
    """Return the address of a module's folder."""
    return f"rsync://{USER}@{address}:{port}/{path}"


def pull(address: str, module: str, folder: str) -> Ended:
    """Copy a module of small files to a folder of root's."""
    files.make_folder(folder, 0o700)
    options = (f"--password-file={files.on_disk(PASSWORD)}", "--contimeout=5", "--timeout=30", *_SMALL)
    place = f"{files.on_disk(folder)}/"
    return attempt("rsync", *options, url(address, PORT, f"{module}/"), place, limit=_SMALL_SECONDS, keep_errors=True)


def copy(
    source: str,
    folder: str,
    *,
    report: Callable[[int], None],
    rate: int,
    paths: str,
    old: Sequence[str],
    again: bool,
) -> Ended:
    """Copy a data set to a folder, as the account.

    rate    bytes per second; 0: no limit
    paths   file with the paths to copy, one per line
    old     folders of earlier versions, whose files that did not change are linked
    again   compare contents, also of files that look the same
    """
    options = [
        # Links become files: the list has only those that stay inside.
        *("-rt", "--copy-links", "--no-devices", "--no-specials", "--chmod=D755,F644", "--sparse", "--partial"),
        *("--info=progress2", "--no-inc-recursive", "--contimeout=10", "--timeout=120"),
        f"--password-file={files.on_disk(PASSWORD)}",
        *(["--ignore-times"] if again else []),
        *([f"--bwlimit={max(rate // 1024, 1)}"] if rate else []),
        f"--files-from={paths}",
        *(f"--link-dest={files.on_disk(place)}" for place in old if not again),
    ]
    return transfer(report, "exec", "rsync", *options, f"{source}/", f"{files.on_disk(folder)}/")
