"""Save the users' homes in the backup's repository, after the head node's state (tailrack-backup-homes.service).

Each home is one backup. restic reads it as root, and sees nothing else than this home and its own files: a link, or a
folder that its owner replaces by one meanwhile, leads nowhere.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from components.node import files, folders, run
from components.node.failure import Failure
from components.node.install import FOLDER as PROGRAMS
from components.node.locks import Lock
from components.node.log import STATE_DIR
from components.node.run import attempt_bounded
from components.roles.storage.backup.restic import CACHE, home_tag, last_reason, restic

FOLDER = "/etc/tailrack/backup"
PROGRAM = "/usr/local/sbin/tailrack-backup"
# The unit that saves the users' homes, its settings and its record.
HOMES_SERVICE = "tailrack-backup-homes.service"
HOMES_SETTINGS, HOMES_RECORD = f"{FOLDER}/homes.json", f"{STATE_DIR}/backup-homes-state"
TAG = "tailrack-homes"
# A home in its backup, and the patterns to leave out.
_HOMES, _EXCLUDE = "/homes", f"{FOLDER}/exclude"
_FORGET_SECONDS, _LOCK_SECONDS, _SIZE_SECONDS, _HOME_SECONDS = 3000, 3600, 900, 15 * 3600
_GB = 10**9
# restic's status if it could not read all files: some have gone meanwhile.
_INCOMPLETE = 3
_SEEN = (
    *("/usr", "-/bin", "-/lib", "-/lib64", "-/sbin", PROGRAMS, PROGRAM, FOLDER),
    *("-/etc/ssl", "-/etc/ca-certificates", "/etc/passwd", "/etc/group", "/etc/hosts", "/etc/nsswitch.conf"),
    *("-/etc/resolv.conf", "-/etc/alternatives"),
)
_ALONE = (
    *("TemporaryFileSystem=/:ro", f"BindPaths={CACHE}", "PrivateTmp=yes", "PrivateDevices=yes", "ProcSubset=pid"),
    *("CapabilityBoundingSet=CAP_DAC_READ_SEARCH", "NoNewPrivileges=yes", "Nice=10", "IOSchedulingClass=idle"),
    *(f"PartOf={HOMES_SERVICE}", f"RuntimeMaxSec={_HOME_SECONDS}"),
)


@dataclass(frozen=True)
class Settings:
    """The folder of the homes, and limits from the config."""

    path: str
    max_gb: int
    exclude: Sequence[str]


def write_settings(path: str, max_gb: int, exclude: Sequence[str]) -> None:
    """Write the settings of the program."""
    files.write(HOMES_SETTINGS, json.dumps({"path": path, "max_gb": max_gb, "exclude": list(exclude)}), 0o600)
    files.write(_EXCLUDE, "\n".join(exclude), 0o600)


def save_homes() -> None:
    """Save them. A home that fails stops no other one. Raises Failure with the reasons."""
    settings = Settings(**json.loads(files.read(HOMES_SETTINGS) or "{}"))
    if not files.is_closed(settings.path):
        raise Failure(f"{settings.path} is not a folder that root alone can change")
    cluster = (files.read(f"{FOLDER}/cluster") or "").strip()
    # The head node's own backup does not remove old data while this lock is held.
    with Lock("backup-homes", seconds=_LOCK_SECONDS):
        # Root's folders are no homes.
        there = folders.folders_in(settings.path).items()
        owned = [name for name, ids in there if ids[0] and not name.endswith(".new")]
        sizes = {name: _size(settings, name) for name in owned}
        reasons = _take_too_large(settings, sizes)
        restic(FOLDER, "unlock", limit=300)
        # The user of a home can delay its backup, for longer if the home is large: save small homes first.
        for name in sorted(sizes, key=lambda name: sizes[name]):
            if reason := _save(cluster, settings, name):
                reasons.append(f"{name}: {reason}")
        with Lock("backup", seconds=_LOCK_SECONDS):
            kept = ("--keep-hourly", "24", "--keep-daily", "30", "--prune")
            words = ("forget", "--host", cluster, "--tag", TAG, "--group-by", "host,tags", *kept)
            ended = restic(FOLDER, *words, limit=_FORGET_SECONDS)
    # A head node that was lost during a backup has left a lock, which restic ignores after 30 minutes.
    if not ended.ok and "already locked" not in ended.errors:
        reasons.append(f"forget: {last_reason(ended.errors)}")
    if reasons:
        raise Failure("; ".join(reasons))


def _size(settings: Settings, name: str) -> int:
    """Return the bytes that a home takes on the disk, without what is left out."""
    words = ("-sx", "-B1", *(f"--exclude={pattern}" for pattern in settings.exclude))
    ended = run.attempt("du", *words, "--", files.on_disk(f"{settings.path}/{name}"), limit=_SIZE_SECONDS, quiet=True)
    size = ended.output.split("\t")[0]
    return int(size) if size.isdecimal() else 0


def _take_too_large(settings: Settings, sizes: dict[str, int]) -> list[str]:
    """Take out the largest homes until the others have at most `max_gb`. Return a sentence about them."""
    all_bytes, left_out = sum(sizes.values()), list[str]()
    while sum(sizes.values()) > settings.max_gb * _GB:
        largest = max(sizes, key=lambda name: sizes[name])
        left_out.append(f"{largest} ({sizes.pop(largest) / _GB:.1f} GB)")
    if not left_out:
        return []
    return [
        f"LEFT OUT: {', '.join(left_out)}: the homes have {all_bytes / _GB:.1f} GB, more than "
        f"tailrack:backup.homes.max_gb ({settings.max_gb}); remove files, or change max_gb or exclude"
    ]


def _save(cluster: str, settings: Settings, name: str) -> str:
    """Save one home. Return why that failed; empty if it did not."""
    home = home_path(name)
    files.make_folder(CACHE, 0o700)
    bound = " ".join([*_SEEN, f"{files.on_disk(settings.path)}/{name}:{home}"])
    properties = (f"--property={text}" for text in (*_ALONE, f"BindReadOnlyPaths={bound}"))
    words = ("backup", "--host", cluster, "--tag", f"{TAG},{home_tag(name)}", "--exclude-file", _EXCLUDE, home)
    alone = ("systemd-run", "--quiet", "--pipe", "--wait", "--collect", *properties)
    ended = attempt_bounded(*alone, PROGRAM, "restic", FOLDER, *words, limit=_HOME_SECONDS)
    return "" if ended.status in (0, _INCOMPLETE) else last_reason(ended.errors)


def home_path(name: str) -> str:
    """Return the path of a user's home in its backup."""
    return f"{_HOMES}/{name}"
