"""Fetch files and verify them by SHA-256.

A file under its final name is always complete and verified. Installations use a copy in a folder of root's, which is
verified again.
"""

import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from components.node import files
from components.node.failure import Failure
from components.node.fetch import fetch_failure
from components.node.log import note
from components.node.run import Ended, attempt
from components.node.step.step import Step

_CURL = ("curl", "-fsSL", "--retry", "3", "--connect-timeout", "20", "--max-time", "300")
# Seconds, more than all of curl's attempts take.
_LIMIT = 1500
# The list of a folder's files with their checksums, in the format of sha256sum.
SUMS = "SHA256SUMS"
_SUM = re.compile(r"([0-9a-f]{64}) [ *]([A-Za-z0-9.+~_-]+)")


@dataclass(frozen=True)
class Artifact:
    """A file by its checksum.

    source      an address, or a path on this machine
    source_key  the config's key of the source
    digest_key  the config's key of the checksum
    """

    digest: str
    source: str
    source_key: str
    digest_key: str


def keep_artifact(step: Step, path: str, artifact: Artifact) -> None:
    """Fetch a file to a path in a folder of root's, unless it is there."""
    if _has(path, artifact.digest):
        return
    folder, name, source = str(PurePosixPath(path).parent), PurePosixPath(path).name, artifact.source
    fresh = f"{folder}/.new"
    files.remove(fresh)
    note(f"fetching {source}")
    ended = _fetch(source, files.on_disk(fresh))
    if not ended.ok:
        files.remove(fresh)
        sys.stderr.write(ended.errors)
        if error := files.room_error(folder):
            raise Failure(f"{folder}: {error}", f"make room there on {step.host}, then run up again")
        remedy = (
            f"open the way there for {step.host}, or set {artifact.source_key} to a copy of your own; then run up again"
        )
        raise fetch_failure(f"{source} cannot be fetched from here", ended.errors, remedy, step.host)
    if not _has(fresh, artifact.digest):
        digest = files.sha256(fresh)
        files.remove(fresh)
        raise Failure(
            f"{name} from {source} has the checksum {digest}, which is not the config's",
            f"find out which of the two is right before you change {artifact.digest_key}",
        )
    files.set_mode(fresh, 0o644)
    files.rename(fresh, path)


def _has(path: str, digest: str) -> bool:
    return digest != "" and files.sha256(path) == digest


def _fetch(source: str, to: str) -> Ended:
    if source.startswith("/"):
        return attempt("cp", source, to, keep_errors=True)
    # An https address must not redirect to http.
    protocols = "=http,https" if source.startswith("http:") else "=https"
    return attempt(*_CURL, "--proto", protocols, "-o", to, source, limit=_LIMIT, keep_errors=True)


def take_artifact(source: str, folder: str, digest: str) -> None:
    """Copy a file to a folder of root's and verify the copy, which no other account can change."""
    name = PurePosixPath(source).name
    if not attempt("cp", files.on_disk(source), files.on_disk(folder)).ok or not _has(f"{folder}/{name}", digest):
        raise Failure(
            f"{name} on the share does not have the checksum in the config",
            "run up again: the head node fetches it again",
        )


def write_sums(folder: str, sums: Mapping[str, str]) -> None:
    """Write the list of a folder's files, the last one of a complete folder."""
    files.write(f"{folder}/{SUMS}", "\n".join(f"{digest}  {name}" for name, digest in sums.items()))


def whole_sums(folder: str) -> Mapping[str, str]:
    """Return the checksums in a folder's list; none unless its files are root's and unchanged."""
    try:
        rows = [_SUM.fullmatch(line) for line in files.lines(f"{folder}/{SUMS}")]
        sums = {row[2]: row[1] for row in rows if row} if all(rows) else {}
        paths = [folder, *(f"{folder}/{name}" for name in files.names_in(folder))]
        whole = all(files.owner_of(path) == "root" for path in paths) and all(
            files.sha256(f"{folder}/{name}") == digest for name, digest in sums.items()
        )
    except (Failure, OSError):
        return {}
    return sums if whole else {}
