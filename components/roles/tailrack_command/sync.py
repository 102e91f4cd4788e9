"""`tailrack sync FROM TO`: copy a folder of a job from the node's disk to the share or a bucket, in the background.

A copy that the job's end cuts off, or with --at-end, is made after the job, before the job's folder is removed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import socket
import subprocess
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from components.roles.scratch import copies
from components.roles.scratch.copies import Copy
from components.roles.scratch.paths import SCRATCH
from components.roles.scratch.sync_report import DONE, RETRIES, RUNS, WAITS, forget_old, report
from components.roles.scratch.transfer import rclone, rclone_environment, transfer
from components.roles.tailrack_command.slurm import SlurmError

NAME, HELP = "sync", "in a job: copy a folder of $TMPDIR to the share or a bucket, in the background"
_REMOTE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@ -]{0,127}:")
_EXAMPLE = 'tailrack sync "$TMPDIR/checkpoints" ~/run1'
_LIMIT_SECONDS = 30


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--at-end", action="store_true", help="copy when the job has ended, however it ends")
    parser.add_argument("--wait", action="store_true", help="copy now, and return when the copy is made")
    parser.add_argument("source", metavar="FROM", help="a folder in the job's folder, $TMPDIR")
    parser.add_argument("target", metavar="TO", help="a folder on the share, or REMOTE:PATH of your rclone config")


def run(arguments: argparse.Namespace) -> int:
    """Note the copy, and start it."""
    folder = _job_folder()
    copy = Copy(
        _source(folder, arguments.source, at_end=arguments.at_end),
        arguments.target,
        os.environ["SLURM_JOB_ID"],
        os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
        at_end=arguments.at_end,
        config=str(Path(config).absolute()) if (config := os.environ.get("RCLONE_CONFIG")) else "",
    )
    copy = replace(copy, target=_target(folder, copy))
    forget_old()
    if earlier := copies.read(folder, copy.id):
        copy = replace(copy, asked=earlier.asked + 1, at_end=copy.at_end or earlier.at_end)
    copies.write(folder, copy)
    report(copy, WAITS)
    show = f"'tailrack why {copy.job}' shows it"
    if arguments.wait:
        reason = _copy(folder, copy, wait=True)
        if reason:
            raise SlurmError(f"{reason}; the node tries again when the job has ended, and {show}")
        return 0
    if arguments.at_end:
        print(f"{arguments.source} is copied to {copy.target} when the job has ended; {show}")
        return 0
    _in_background(folder, copy)
    print(f"copying {arguments.source} to {copy.target}; {show}")
    return 0


def _job_folder() -> Path:
    job = os.environ.get("SLURM_JOB_ID", "")
    if not job.isdecimal():
        raise SlurmError(f"run this command in a job, for example in a batch script: {_EXAMPLE}")
    with suppress(OSError):
        parent = Path(SCRATCH).read_text(encoding="utf-8").partition("\n")[0]
        folder = Path(parent, job)
        if parent and folder.is_dir() and folder.stat().st_uid == os.getuid():
            return Path(os.path.realpath(folder))
    raise SlurmError("this job has no folder on this node's disk; ask your administrator for tailrack:scratch")


def _source(folder: Path, given: str, *, at_end: bool) -> str:
    """Return the source's path in the job's folder."""
    path = Path(os.path.realpath(given))
    if path != folder and folder not in path.parents:
        raise SlurmError(f"{given} is not in the job's folder {folder}, so it stays after the job; copy it with rsync")
    if (path.exists() and not path.is_dir()) or (not at_end and not path.exists()):
        raise SlurmError(f"{given} is not a folder; write the folder that contains your files")
    return str(path.relative_to(folder))


def _target(folder: Path, copy: Copy) -> str:
    """Return the target, after a look whether it can be reached."""
    target = copy.target
    if not target.isprintable():
        raise SlurmError("TO contains special characters; write a path of plain characters")
    if target.startswith("/"):
        path = Path(os.path.realpath(target))
        if path == folder or folder in path.parents:
            raise SlurmError(f"{target} is in the job's folder, which is removed; write a folder on the share")
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise SlurmError(f"cannot make the folder {target}: {error.strerror}") from None
        if not os.access(path, os.W_OK | os.X_OK):
            raise SlurmError(f"you cannot write to {target}; write a folder of yours")
        return str(path)
    remote = _REMOTE.match(target)
    if not remote:
        raise SlurmError(
            f"{target} is neither an absolute path such as /shared/home/ada/run1 nor REMOTE:BUCKET/PATH with a remote "
            "of your rclone config"
        )
    if not shutil.which("rclone"):
        raise SlurmError("rclone is not installed on this node; write a folder on the share, or ask your administrator")
    remotes = _remotes(copy.config)
    if remote[0] not in remotes:
        has = f"has only {' '.join(remotes)}" if remotes else "has no remote"
        raise SlurmError(f"your rclone config {has}, not {remote[0]} Run 'rclone config' on the head node to add it")
    return target


def _remotes(config: str) -> list[str]:
    try:
        done = subprocess.run(
            rclone("listremotes"),
            env=rclone_environment(config),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_LIMIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()


def _copy(folder: Path, copy: Copy, *, wait: bool) -> str:
    """Copy until no one has asked again meanwhile. Return why it failed. The rest is copied after the job's end."""
    with copies.locked(folder, copy, wait=wait) as free:
        while free and (present := copies.read(folder, copy.id)):
            report(present, RUNS)
            if reason := transfer(folder, present):
                report(present, RETRIES, reason)
                return reason
            again = copies.read(folder, copy.id)
            if again and again.asked != present.asked:
                continue
            report(present, DONE)
            if not present.at_end:
                copies.remove(folder, present)
            break
    return ""


def _in_background(folder: Path, copy: Copy) -> None:
    if os.fork():
        return
    # The job's script must not wait for this process: it keeps no stream of it.
    status = 1
    try:
        os.setsid()
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.chdir("/")
        status = 1 if _copy(folder, copy, wait=False) else 0
    finally:
        os._exit(status)
