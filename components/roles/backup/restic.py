"""Run restic with a folder that contains the target's repository, password and keys.

No secret is in its arguments. Keys of S3 are in its environment, which only root can read: a file of credentials gives
`#`, `;` and quotes a meaning. restic.sh does the same for the program that makes backups.
"""

from __future__ import annotations

import re

from components.node import files
from components.node.bounded import attempt_bounded
from components.node.run import Ended
from components.node.text import printable

TARGET = "tailrack-backup-target"
_CACHE = "/var/cache/tailrack-backup"
_MOST_REASON = 300
# Lines that repeat the place and the signal after the reason.
_NO_REASON = re.compile(r"^$|^(s3|sftp):|^Is there a repository|signal terminated|context canceled")
_RETRY = re.compile(r"^.* returned error, retrying after [^:]*: ")


def restic(
    folder: str, *words: str, limit: float, most: int = 0, stdin: int | None = None, into: int | None = None
) -> Ended:
    """Run a command of restic for a number of seconds.

    most    bytes of output that are returned; without it, the output counts as errors
    stdin   the descriptor of a pipe that it reads
    into    the descriptor of a pipe that gets its output
    """
    place = files.on_disk(folder)
    ssh = f"sftp.command=ssh -F {place}/ssh_config {TARGET} -s sftp"
    return attempt_bounded(
        "restic",
        *(("-o", ssh) if files.exists(f"{folder}/ssh_config") else ()),
        *("--repo", (files.read(f"{folder}/repository") or "").strip()),
        *("--password-file", f"{place}/password", "--cache-dir", files.on_disk(_CACHE)),
        *words,
        limit=limit,
        environment={"HOME": "/root", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", **_keys(folder)},
        most=most,
        merged=not most,
        stdin="" if stdin is None else stdin,
        into=into,
    )


def _keys(folder: str) -> dict[str, str]:
    names = {"AWS_ACCESS_KEY_ID": "access_key", "AWS_SECRET_ACCESS_KEY": "secret_key"}
    texts = {variable: files.read(f"{folder}/{name}") for variable, name in names.items()}
    return {variable: text.strip() for variable, text in texts.items() if text}


def last_reason(errors: str) -> str:
    """Return the line of restic's errors that has the reason, made safe to show."""
    lines = [line for line in errors.splitlines() if not _NO_REASON.search(line)]
    return shown(_RETRY.sub("", lines[-1])) if lines else "it did not answer in time"


def shown(message: str) -> str:
    """Return a message of a target as one safe line."""
    return printable(message, _MOST_REASON)
