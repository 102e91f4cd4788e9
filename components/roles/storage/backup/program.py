"""Save the head node's state and the users' homes, and show how old the last backups are (`tailrack-backup`).

tailrack-backup run                     make a backup of the head node's state
tailrack-backup status                  print the age of the last backups
tailrack-backup restic FOLDER WORDS...  run restic with the target's keys, which are in /etc/tailrack/backup

Its units call `homes`, and `ended` after each run: a run that was killed cannot report that or remove its copy.
"""

import fnmatch
import os
import socket
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from components.node import files, folders, run
from components.node.accounts import as_user
from components.node.failure import Failure
from components.node.locks import Lock
from components.node.log import note, printable
from components.node.step.step import STATE_DIR
from components.node.waiting import within
from components.roles.slurm.slurm.folders import CONTROLLER_STATE
from components.roles.storage.backup.homes import FOLDER, HOMES_RECORD, HOMES_SERVICE, HOMES_SETTINGS, save_homes
from components.roles.storage.backup.restic import command, last_reason, restic

# The times of the last backup and failure; the copy of the state that is being saved.
RECORD, STAGE = f"{STATE_DIR}/backup-state", f"{STATE_DIR}/backup-stage"
_HOOKS, _DUMPS = "/usr/local/lib/tailrack/backup.d", f"{STATE_DIR}/dumps"
# A backup is stale after this many seconds: two hourly runs were missed.
_STALE_SECONDS = 10800
_HOOK_SECONDS, _COPY_SECONDS, _RESTIC_SECONDS = 900, 900, 3000
# Limit in bytes of the state that another account owns.
_ACCOUNT_BYTES = 10**11
_MOST_REASON = 500


def main(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    os.umask(0o022)
    match [*arguments]:
        case ["run"]:
            return _run()
        case ["status"]:
            sys.stdout.write(f"{status()}\n")
            return 0
        case ["homes"]:
            return _recorded(HOMES_RECORD, "backup of homes", save_homes)
        case ["ended"]:
            return ended()
        case ["restic", folder, *words]:
            line, environment = command(folder, *words)
            os.execvpe(line[0], line, {**os.environ, **environment})  # noqa: S606 no shell
    sys.stderr.write(f"{__doc__}")
    return 2


def record(path: str) -> dict[str, str]:
    """Return a record: the times of the last backup and failure, and the reason of the latter."""
    rows = (line.partition("=") for line in files.lines(path))
    return {name: value for name, _, value in rows if value}


def _write(path: str, values: Mapping[str, object]) -> None:
    """Write a record. Any account may read it; it contains no secrets."""
    files.write(path, "\n".join(f"{name}={value}" for name, value in values.items() if value))


def _failed(path: str, what: str, reason: str) -> None:
    """Log a failure as an error, and record it for `status` until a backup succeeds."""
    text = printable(reason, _MOST_REASON)
    # systemd takes <3> as the priority of an error.
    os.write(2, f"<3>{what} failed: {text}\n".encode())
    _write(path, {"done": record(path).get("done"), "failed": int(time.time()), "reason": text})


def _recorded(path: str, what: str, work: Callable[[], None]) -> int:
    """Do work, and record how that went."""
    try:
        work()
    except Failure as failure:
        _failed(path, what, failure.reason)
        return 1
    except BaseException:
        _failed(path, what, "it stopped before it finished, see above")
        raise
    _write(path, {"done": int(time.time())})
    return 0


def _run() -> int:
    try:
        lock = Lock("backup", seconds=5)
    except Failure:
        # A run by hand needs no second backup while one is running.
        note("another backup is running")
        return 0
    with lock:
        _write(RECORD, {**record(RECORD), "began": int(time.time()), "process": os.getpid()})
        try:
            # cp of coreutils 9.1 finds the folders of `--parents` only from there.
            with _working_in("/"):
                result = _recorded(RECORD, "backup", _save)
        finally:
            files.remove_folder(STAGE)
        if result == 0:
            _forget()
    if result == 0 and files.exists(HOMES_SETTINGS):
        run.attempt("systemctl", "start", "--no-block", HOMES_SERVICE)
    return result


def ended() -> int:
    """Report a run that was killed. Called after each run of the unit, with systemd's result in the environment."""
    result = os.environ.get("SERVICE_RESULT", "success")
    with suppress(Failure):
        if result != "success":
            with Lock("backup", seconds=5):
                if "began" in record(RECORD):
                    files.remove_folder(STAGE)
                    why = f"it was killed before it finished ({result}, {os.environ.get('EXIT_STATUS', '')})"
                    _failed(RECORD, "backup", why)
                    return 1
    return 0


def _save() -> None:
    files.remove_folder(STAGE)
    files.make_folder(STAGE, 0o700)
    files.make_folder(f"{STAGE}/dumps", 0o700)
    # Dumps of a lost head node that no program has loaded yet: `latest` would lack them.
    if files.is_folder(_DUMPS):
        _copy_of_root(f"{files.on_disk(_DUMPS)}/.", files.on_disk(f"{STAGE}/dumps"))
    # Hooks of other roles dump databases and the like into the folder they get.
    for name in files.names_in(_HOOKS):
        hook = files.on_disk(f"{_HOOKS}/{name}")
        if os.access(hook, os.X_OK):
            status = run.attempt(hook, files.on_disk(f"{STAGE}/dumps"), limit=_HOOK_SECONDS).status
            if status:
                raise Failure(f"{name} ended with status {status}")
    for path in filter(None, files.lines(f"{FOLDER}/state")):
        if path == CONTROLLER_STATE:
            _copy_slurm()
        else:
            folder, _, pattern = path.rpartition("/")
            names = fnmatch.filter(files.names_in(folder), pattern) if "*" in pattern else [pattern]
            for name in names:
                if folders.kind_of(f"{folder}/{name}"):
                    _copy(f"{folder}/{name}")
    cluster = (files.read(f"{FOLDER}/cluster") or "").strip()
    files.write(f"{STAGE}/backup", f"cluster={cluster}\nhead={socket.gethostname()}\nmade={int(time.time())}")
    # Remove the lock of a run that was cut off.
    _restic("unlock", limit=300)
    with _working_in(files.on_disk(STAGE)):
        _restic("backup", "--host", cluster, "--tag", "tailrack", ".", limit=_RESTIC_SECONDS)


@contextmanager
def _working_in(folder: str) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _restic(*words: str, limit: float) -> None:
    result = restic(FOLDER, *words, limit=limit)
    if not result.ok:
        raise Failure(f"{words[0]}: {last_reason(result.errors)}")


def _forget() -> None:
    """Remove old backups. This needs the repository alone; a backup of homes that is running does it at its end."""
    with suppress(Failure), Lock("backup-homes", seconds=0):
        kept = ("--group-by", "host", "--keep-hourly", "48", "--keep-daily", "30", "--prune")
        cluster = (files.read(f"{FOLDER}/cluster") or "").strip()
        result = restic(FOLDER, "forget", "--host", cluster, "--tag", "tailrack", *kept, limit=_RESTIC_SECONDS)
        # A head node that was lost during a backup has left a lock, which restic ignores after 30 minutes.
        if not result.ok and "already locked" not in result.errors:
            _failed(RECORD, "backup", f"forget: {last_reason(result.errors)}")


def _copy(path: str) -> None:
    """Copy a path into the stage: as root if the folder above is root's, else as its owner."""
    above = Path(files.on_disk(path)).parent.lstat()
    if above.st_uid == os.geteuid():
        _copy_of_root("--parents", "--", files.on_disk(path), files.on_disk(STAGE))
    else:
        _copy_as((above.st_uid, above.st_gid), path)


def _copy_of_root(*words: str) -> None:
    if not run.attempt("cp", "-a", *words, limit=_COPY_SECONDS).ok:
        raise Failure(f"cannot copy {words[-2]}: is {STATE_DIR} full?")


def _copy_as(account: str | tuple[int, int], path: str) -> None:
    """Copy a path that an account can change: read it as that account, up to a limit, and unpack it in a new folder.

    Keep only files and folders. Skip the disk space that is reserved for slurmctld (tailrack-slurm-room).
    """
    fresh, place = f"{STAGE}/.fresh", Path(path)
    files.remove_folder(fresh)
    for folder in (fresh, f"{fresh}/tree"):
        files.make_folder(folder, 0o700)
    tar, tree = files.on_disk(f"{fresh}/tar"), files.on_disk(f"{fresh}/tree")
    words = ("tar", "-c", "--exclude=tailrack-room", "-C", files.on_disk(str(place.parent)), "--", place.name)
    with Path(tar).open("xb") as stream:
        packed = as_user(account, *words, limit=_COPY_SECONDS, most=_ACCOUNT_BYTES, into=stream).ok
    unpack = ("tar", "-x", "-f", tar, "-C", tree, "--no-same-owner", "--no-same-permissions")
    if not packed or not run.attempt(*unpack, limit=_COPY_SECONDS).ok:
        raise Failure(f"cannot copy {path}: is {STATE_DIR} full?")
    run.run("find", tree, "!", "-type", "f", "!", "-type", "d", "-delete")
    if not (Path(tree) / place.name).exists():
        raise Failure(f"{path} is neither a file nor a folder")
    files.make_folder(f"{STAGE}{place.parent}", 0o700)
    files.rename(f"{fresh}/tree/{place.name}", f"{STAGE}{path}")
    files.remove_folder(fresh)


def _copy_slurm() -> None:
    """Copy slurmctld's state while slurmctld writes none of its files, which it writes one after another.

    slurmctld saves changes within 5 seconds (SAVE_MAX_WAIT in state_save.c), so after 7 seconds the files have the
    state at the backup's start. A restored slurmctld would start a running job again if it were saved as pending.
    """
    folder = Path(files.on_disk(CONTROLLER_STATE))
    if not stat.S_ISDIR(folders.kind_of(CONTROLLER_STATE)):
        return

    def saved() -> float:
        try:
            return (folder / "job_state").lstat().st_mtime
        except FileNotFoundError:
            return 0.0

    time.sleep(7)
    for _ in range(60):
        moment = saved()
        if not within(2, moment, time.time()):
            files.remove_folder(f"{STAGE}{CONTROLLER_STATE}")
            _copy_as("slurm", CONTROLLER_STATE)
            if saved() == moment:
                return
        time.sleep(1)
    raise Failure("slurmctld wrote its state without a pause for 60 seconds")


def status() -> str:
    """Return a line about the head node's state, and one about the users' homes if the config saves them."""
    values = record(RECORD)
    reason, done = values.get("reason"), values.get("done")
    # A run by hand was killed, or the machine went down.
    if not reason and "began" in values and not _at_work(values.get("process", "")):
        reason = "it was killed before it finished"
    if reason:
        line = f"backup: FAILED: {reason}; next: journalctl -u tailrack-backup, then systemctl start tailrack-backup"
    elif not done:
        line = "backup: none has been made; next: systemctl start tailrack-backup"
    elif not within(_STALE_SECONDS, int(done), time.time()):
        line = (
            f"backup: STALE: the last one is {_minutes(done)} minutes old; next: systemctl status tailrack-backup.timer"
        )
    else:
        line = f"backup: the last one is {_minutes(done)} minutes old"
    return f"{line}\n{_homes_status()}" if files.exists(HOMES_SETTINGS) else line


def _homes_status() -> str:
    values = record(HOMES_RECORD)
    reason, done = values.get("reason"), values.get("done")
    last = f"the last backup is {_minutes(done)} minutes old" if done else ""
    remedy = "next: journalctl -u tailrack-backup-homes, then systemctl start tailrack-backup-homes"
    if run.attempt("systemctl", "is-active", HOMES_SERVICE, quiet=True).output.strip() == "activating":
        failure = f"the last attempt FAILED: {reason}" if reason else ""
        return "; ".join(filter(None, ("homes: being saved now", last, failure)))
    if reason:
        return f"homes: FAILED: {reason}; {remedy}"
    return f"homes: {last}" if last else f"homes: no backup has been made; {remedy}"


def _minutes(done: str) -> int:
    return int(time.time() - int(done)) // 60


def _at_work(process: str) -> bool:
    """Return whether a run is still going. The process id may be reused, so check that root runs this program."""
    try:
        owner = Path(files.on_disk(f"/proc/{process}")).stat().st_uid
    except OSError:
        return False
    return owner == os.geteuid() and "run" in files.read_process(process, "cmdline").split("\0")
