"""Run restic with a folder that contains the target's repository, password and keys, and list the backups there.

No secret is in its arguments. Keys of S3 are in its environment, which only root can read: a file of credentials gives
`#`, `;` and quotes a meaning.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone

from components.node import files
from components.node.failure import Failure
from components.node.log import printable
from components.node.run import Ended, attempt_bounded

TARGET = "tailrack-backup-target"
CACHE = "/var/cache/tailrack-backup"
_MOST_REASON = 300
# Lines that repeat the place and the signal after the reason.
_NO_REASON = re.compile(r"^$|^(s3|sftp):|^Is there a repository|signal terminated|context canceled")
_RETRY = re.compile(r"^.* returned error, retrying after [^:]*: ")
_LIST_SECONDS = 120
_MOST_LIST = 2**26
# The tag of a backup of one home, before its user's name.
_HOME = "home-"


def command(folder: str, *words: str) -> tuple[list[str], dict[str, str]]:
    """Return the command line of restic, and the variables of its environment."""
    place = files.on_disk(folder)
    ssh = f"sftp.command=ssh -F {place}/ssh_config {TARGET} -s sftp"
    line = [
        *("restic", *(("-o", ssh) if files.exists(f"{folder}/ssh_config") else ())),
        *("--repo", (files.read(f"{folder}/repository") or "").strip()),
        *("--password-file", f"{place}/password", "--cache-dir", files.on_disk(CACHE), *words),
    ]
    return line, {"HOME": "/root", "AWS_SHARED_CREDENTIALS_FILE": "/dev/null", **_keys(folder)}


def restic(folder: str, *words: str, limit: float, most: int = 0) -> Ended:
    """Run a command of restic for a number of seconds.

    most    bytes of output that are returned; without it, the output counts as errors
    """
    line, environment = command(folder, *words)
    return attempt_bounded(*line, limit=limit, environment=environment, most=most, merged=not most)


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


@dataclass(frozen=True, order=True)
class Backup:
    """A backup, and when it was made, in seconds since 1970."""

    made: int
    id: str
    cluster: str
    tags: tuple[str, ...] = ()

    @property
    def home(self) -> str:
        """Return the name of the user whose home it contains; empty if it is another backup."""
        return next((tag.removeprefix(_HOME) for tag in self.tags if tag.startswith(_HOME)), "")


def home_tag(name: str) -> str:
    """Return the tag of the backups of one user's home."""
    return f"{_HOME}{name}"


def list_backups(folder: str, tag: str) -> list[Backup]:
    """Return the backups with a tag. Raises Failure if the target cannot be read.

    folder   the target's keys
    """
    ended = restic(folder, "--no-lock", "snapshots", "--json", "--tag", tag, limit=_LIST_SECONDS, most=_MOST_LIST)
    try:
        backups = list(_backups(ended.output)) if ended.ok else None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        backups = None
    if backups is None:
        raise Failure(
            f"the archive at the backup's target cannot be read: {last_reason(ended.errors)}",
            "see tailrack:backup.target, or restore the files there from another copy; then run up again",
        )
    return backups


def _backups(text: str) -> Iterator[Backup]:
    for entry in json.loads(text) or ():
        if not re.fullmatch("[0-9a-f]+", entry["id"]):
            raise ValueError(entry["id"])
        # restic writes nanoseconds and `Z`, which Python 3.10 does not read.
        moment = datetime.fromisoformat(re.sub(r"\.[0-9]+", "", entry["time"]).replace("Z", "+00:00"))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)  # noqa: UP017 Python 3.10
        tags = tuple(map(str, entry.get("tags") or ()))
        yield Backup(int(moment.timestamp()), entry["id"], str(entry["hostname"]), tags)
