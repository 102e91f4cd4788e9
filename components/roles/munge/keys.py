"""A machine's munge keys, and the digests by which machines compare them."""

from __future__ import annotations

import hashlib

from components.node import files, folders
from components.node.failure import Failure
from components.node.step.step import STATE_DIR

FOLDER = "/etc/munge"
KEY = f"{FOLDER}/munge.key"
# The key that all machines switch to at once (services.py). It exists until munged has read it as the present key.
NEXT = f"{KEY}.next"
# On the head node: members that have not proved the key yet, one per line.
LATE = f"{STATE_DIR}/munge.late"
# Only root can read it: `digest cluster`, one per line, of all keys that were written here. A cluster's next key is its
# own too; a key of another tailrack cluster is not.
DIGESTS = f"{STATE_DIR}/munge.digests"

# The generation of the last key that a join brought (tailrack:cluster.munge_generation).
GENERATION = f"{STATE_DIR}/munge.generation"


def take_folder() -> None:
    """Give the keys' folder to root before root works there.

    munge's package gives it to munge's account, which could replace a key by a link that root would follow.
    """
    folders.take(FOLDER, 0o711)
    for path in (KEY, NEXT):
        if files.exists(path) and not files.is_plain(path):
            raise Failure(
                f"{path} is not a regular file; nothing was read or written through it",
                f"find out which account created it ('ls -l {path}'), remove it, then run up again",
            )


def digest_of(text: str) -> str:
    """Return the digest of a key's file with this text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def is_foreign(text: str, cluster: str) -> bool:
    """Return whether a key is of another cluster. A blank file has no key."""
    return bool(text.strip()) and f"{digest_of(text)} {cluster}" not in files.lines(DIGESTS)


def late_nodes() -> list[str]:
    """Return the members that have not proved the key yet."""
    return [node for node in files.lines(LATE) if node]


def keep_late(nodes: list[str]) -> None:
    """Record these members. tailrack-munge-release reads the file."""
    if nodes:
        files.write(LATE, "\n".join(nodes))
    else:
        files.remove(LATE)
