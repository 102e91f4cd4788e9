"""The answer `munge-next`: receive the cluster's next munge key from the head node, on stdin. munge-switch puts it into
use.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

from components.node import files, folders
from components.node.failure import Failure
from components.node.program import run_program
from components.roles.munge.keys import DIGESTS, FOLDER, NEXT, digest_of

_MOST = 2048
_KEY = re.compile("[A-Za-z0-9+/=]{32,1024}")


def main(arguments: Sequence[str]) -> int:
    """Receive the key and return the exit status."""
    return run_program("", lambda: receive(sys.stdin.read(_MOST).rstrip("\n")))


def receive(key: str) -> None:
    """Write the next key. Raises Failure."""
    if not _KEY.fullmatch(key):
        raise Failure("stdin is not a munge key")
    folders.take(FOLDER, 0o711)
    # Note the key's cluster before writing the key, for a later check by another cluster (check.py).
    known = files.lines(DIGESTS)
    if not known:
        raise Failure(f"{DIGESTS} does not name this machine's cluster")
    digest, cluster = digest_of(f"{key}\n"), known[0].partition(" ")[2]
    files.add_line(DIGESTS, f"{digest} {cluster}", 0o600)
    files.write(NEXT, key, 0o600)
