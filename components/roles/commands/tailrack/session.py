"""`tailrack session`: a job on a node for work by hand, with ssh, an editor or Jupyter, until its user ends it."""

from __future__ import annotations

import argparse
import json
import math
import os
import pwd
import re
import shlex
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from components.roles.commands.tailrack import ssh_config
from components.roles.commands.tailrack.why import as_text, explain
from components.slurm_commands import slurm
from components.slurm_commands.jobs import Job
from components.slurm_commands.slurm import SlurmError
from components.validation.preflight.findings import plain
from components.validation.slurm_jobs import read_kept
from components.validation.untrusted import read

NAME, HELP = "session", "get a node for work by hand: print how to reach it with ssh, VS Code or Jupyter"
# Jupyter's image may have to be imported first.
SERVER_SECONDS = 900
# Every question costs slurmctld time, so a long wait has few.
FIRST_SECONDS, MOST_SECONDS = 0.5, 10.0
_GPUS = re.compile(r"([A-Za-z0-9_.-]{1,64}:)?[0-9]{1,4}")
_NAME = re.compile(r"[A-Za-z0-9_.,-]{1,255}")
_IMAGE = re.compile(r"[A-Za-z0-9_./:@#$+~=-]{1,1024}")
# Parts of errors while slurmctld does not answer.
_AWAY = ("unable to contact slurm controller", "socket timed out", "zero bytes", "has not answered for")
_MOST_HOURS = 24 * 365
_OUTPUT_LINES = 10
FOLDER = ".local/state/tailrack/session"
MAKE_JUPYTER = "python3 -m venv ~/venv && ~/venv/bin/pip install jupyterlab"
_KEPT_SECONDS = 30 * 86400
_MOST_BYTES = 65536
_WAITS = "#!/bin/bash\nexec sleep infinity\n"
# The token is in a file, because every user of the node can read arguments. Jupyter takes the next free port if another
# program has this one, and writes the port and the token into a file in its folder for this.
_SERVES = """#!/bin/bash
umask 077
place={folder}/$SLURM_JOB_ID
mkdir -p "$place" || exit
trap 'rm -rf -- "$place"' EXIT
trap 'exit 143' TERM
export JUPYTER_TOKEN_FILE=$place/token JUPYTER_RUNTIME_DIR=$place
unset JUPYTER_TOKEN
od -An -v -tx1 -N24 /dev/urandom | tr -d ' \\n' >"$place/token" || exit
{program} --no-browser --ip=127.0.0.1 --port=$((61000 + SLURM_JOB_ID % 4500))
"""


class _Ended(SlurmError):
    """The job has ended. The message explains why, and has the end of the job's output."""

    def __init__(self, job: Job) -> None:
        lines = read_kept(Path(job.output)).splitlines()[-_OUTPUT_LINES:] if job.output else []
        super().__init__("\n".join([as_text(job, explain(job, [])), *(f"  | {plain(line)}" for line in lines)]))


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--gpus", default="1", metavar="N", help="GPUs, such as 2 or h200:2; 0 for none (default: 1)")
    parser.add_argument("--hours", type=float, default=8.0, metavar="N", help="hours until it ends (default: 8)")
    parser.add_argument("--cpus", type=int, metavar="N", help="CPUs (default: the share of its GPUs)")
    parser.add_argument("--partition", metavar="P", help="partition, such as a site or a kind of GPU")
    parser.add_argument("--image", default="", metavar="NAME", help="container image for Jupyter and for shells")
    parser.add_argument("--jupyter", action="store_true", help="run JupyterLab, and print its address")
    parser.add_argument("--code", action="store_true", help="print the address for VS Code Remote-SSH")
    when = parser.add_mutually_exclusive_group()
    when.add_argument("--no-wait", action="store_true", help="return at once")
    when.add_argument("--job", metavar="N", help="print how to reach this session of yours; --code, --jupyter, --image")


def run(arguments: argparse.Namespace) -> int:
    """Submit the job, wait until it runs, and print how to reach it."""
    home = Path(pwd.getpwuid(os.getuid()).pw_dir)
    _check(arguments)
    number = arguments.job or _submit(arguments, home)
    if not arguments.job:
        print(f"submitted job {number}", flush=True)
    again = shlex.join(["tailrack", NAME, "--job", number, *_shown(arguments)])
    if arguments.no_wait:
        print(f"When it runs, this prints how to reach it: {again}")
        print(f"To end it: scancel {number}")
        return 0
    try:
        job = _wait_until_it_runs(number, "Ctrl-C stops waiting" if arguments.job else "Ctrl-C cancels it")
    except KeyboardInterrupt:
        if arguments.job:
            raise
        return _cancel(number)
    try:
        server = _wait_for_server(home, job) if arguments.jupyter else None
    except KeyboardInterrupt:
        print(f"\njob {number} runs on; to see how to reach it: {again}; to end it: scancel {number}")
        return 1
    print("\n".join(plain(line) for line in _lines(arguments, job, home, server)))
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Raise SlurmError for a value that sbatch would not take, or would take for something else."""
    if arguments.job is not None and not re.fullmatch(r"[0-9]{1,10}", arguments.job):
        raise SlurmError(f"--job {arguments.job!r} is not the number of a job; write one such as 28")
    if not _GPUS.fullmatch(arguments.gpus):
        raise SlurmError(f"--gpus {arguments.gpus!r} is not a number of GPUs; write 2, or h200:2 for a kind")
    if not 0 < arguments.hours <= _MOST_HOURS:
        raise SlurmError(f"--hours {arguments.hours:g} is not between 0 and {_MOST_HOURS}; write 8, or 0.5")
    if arguments.cpus is not None and not 0 < arguments.cpus < 65536:
        raise SlurmError(f"--cpus {arguments.cpus} is not a number of CPUs; write 8")
    if arguments.partition is not None and not _NAME.fullmatch(arguments.partition):
        raise SlurmError(f"--partition {arguments.partition!r} is no partition; 'sinfo -s' shows all")
    if arguments.image and not _IMAGE.fullmatch(arguments.image):
        raise SlurmError(f"--image {arguments.image!r} is no image; write pytorch, or nvcr.io#nvidia/pytorch:25.08-py3")
    if arguments.image and not arguments.job and not slurm.has_containers():
        raise SlurmError("this cluster has no containers, so --image cannot work; leave it out")


def _submit(arguments: argparse.Namespace, home: Path) -> str:
    """Submit the job, and return its number."""
    jupyter = ""
    if arguments.jupyter:
        jupyter = "jupyter-lab" if arguments.image else find_jupyter(home)
    options = [
        "--job-name=session",
        f"--time={math.ceil(arguments.hours * 60)}",
        "--nodes=1",
        "--ntasks=1",
        # A session that starts again somewhere else, unseen, would hold its GPUs for nothing.
        "--no-requeue",
        f"--output={prepare(home)}",
    ]
    if arguments.gpus.rpartition(":")[2].strip("0"):
        options.append(f"--gpus={arguments.gpus}")
    if arguments.cpus:
        options.append(f"--cpus-per-task={arguments.cpus}")
    if arguments.partition:
        options.append(f"--partition={arguments.partition}")
    # A sbatch that Ctrl-C ends may have submitted a job whose number no one knows.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return slurm.submit(script(home, jupyter, arguments.image), *options)
    except SlurmError as error:
        hint = "; for a session without a GPU, add --gpus 0" if any(o.startswith("--gpus=") for o in options) else ""
        raise SlurmError(f"{error}{hint}") from None
    finally:
        signal.signal(signal.SIGINT, before)


def _cancel(number: str) -> int:
    try:
        slurm.cancel(number)
    except SlurmError as error:
        print(f"\ntailrack: job {number} is not cancelled: {error}; run 'scancel {number}'", file=sys.stderr)
    else:
        print(f"\ncancelled job {number}")
    return 1


def _wait_until_it_runs(number: str, hint: str) -> Job:
    """Return the job when it runs, and print meanwhile why it waits. Raise SlurmError if it has ended."""
    printed = ""
    for _ in _pauses():
        with _patient():
            job = _own_job(number)
            if job.state == "RUNNING" and job.nodes and not {"CONFIGURING", "COMPLETING"} & set(job.flags):
                return job
            if not job.waits and not job.runs:
                raise _Ended(job)
            # A job that can start at once has no reason to print yet.
            if job.reason not in ("", "None", printed):
                print(as_text(job, explain(job, slurm.nodes() if job.waits else [])))
                print("" if printed else f"  {hint}\n", end="", flush=True)
                printed = job.reason
    raise AssertionError("a wait has no end")


def _wait_for_server(home: Path, job: Job) -> Server:
    """Return the job's Jupyter server when it runs. Raise SlurmError if none starts."""
    end = time.monotonic() + SERVER_SECONDS
    announced = False
    for _ in _pauses():
        try:
            server = read_server(home, job.number)
        except SlurmError as error:
            slurm.cancel(str(job.number))
            raise SlurmError(f"{error}; cancelled job {job.number}") from None
        if server:
            return server
        with _patient():
            present = _own_job(str(job.number))
            if not present.runs:
                raise _Ended(present)
        if time.monotonic() > end:
            raise SlurmError(
                f"Jupyter has not started within {SERVER_SECONDS // 60} minutes; see {job.output}; "
                f"job {job.number} still runs: scancel {job.number}"
            )
        if not announced:
            print(f"job {job.number} runs on {job.nodes}; Jupyter is starting", flush=True)
            announced = True
    raise AssertionError("a wait has no end")


@contextmanager
def _patient() -> Iterator[None]:
    """Let a wait go on while slurmctld restarts: the job would start, and no one would know."""
    try:
        yield
    except SlurmError as error:
        # The output of a job may contain any text.
        if isinstance(error, _Ended) or not any(text in str(error).lower() for text in _AWAY):
            raise


def _pauses() -> Iterator[None]:
    """Yield at once, and then after longer and longer pauses."""
    pause = FIRST_SECONDS
    while True:
        yield
        time.sleep(pause)
        pause = min(pause * 1.3, MOST_SECONDS)


def _own_job(number: str) -> Job:
    job = slurm.jobs(number)[0]
    # Only the accounting, which has jobs that ended, does not know the user's number.
    if job.user_number not in (0, os.getuid()) or os.getuid() == 0:
        raise SlurmError(f"job {number} is a job of {job.user}, not yours; 'squeue --me' shows your jobs")
    return job


def _shown(arguments: argparse.Namespace) -> list[str]:
    """Return the options that decide what is printed."""
    image = [f"--image={arguments.image}"] if arguments.image else []
    return [*(["--code"] if arguments.code else []), *(["--jupyter"] if arguments.jupyter else []), *image]


def _lines(arguments: argparse.Namespace, job: Job, home: Path, server: Server | None) -> Iterator[str]:
    end = f" until {time.strftime('%Y-%m-%d %H:%M', time.gmtime(job.end))} UTC" if job.end else ""
    yield f"job {job.number} runs on {job.nodes}{end}"
    yield ""
    yield "Once, on your computer, so that it knows the nodes:"
    yield f"    {_first_time(job.user)}"
    yield "Then, on your computer:"
    yield f"    ssh {job.nodes}"
    if arguments.code:
        yield f"    code --folder-uri vscode-remote://ssh-remote+{job.nodes}{quote(str(home))}"
    if server:
        yield f"    ssh -L {server.port}:127.0.0.1:{server.port} {job.nodes}"
        yield f"    and open {server.url}"
    inside = container(arguments.image) if arguments.image else ()
    yield f"On the head node, a shell with the job's CPUs and GPUs{' in its image' if inside else ''}:"
    yield f"    {shlex.join(['srun', f'--jobid={job.number}', '--overlap', *inside, '--pty', 'bash'])}"
    yield f"To end it: scancel {job.number}"


def _first_time(user: str) -> str:
    """Return the command that adds the lines of `tailrack ssh-config` to the user's configuration of ssh."""
    try:
        address, port = ssh_config.reached()
    except ValueError:
        address, port = "HEAD-NODE", ssh_config.DEFAULT_PORT
    ports = ("", "") if port == ssh_config.DEFAULT_PORT else (f"-p {port} ", f" --port {port}")
    return f"ssh {ports[0]}{user}@{address} tailrack ssh-config --head {address}{ports[1]} >>~/.ssh/config"


@dataclass(frozen=True)
class Server:
    """A Jupyter server that runs. `token` is empty if its user has set a password."""

    port: int
    token: str
    password: Any = False

    @property
    def url(self) -> str:
        """Return its address on the user's computer, behind `ssh -L`."""
        return f"http://127.0.0.1:{self.port}/lab" + (f"?token={self.token}" if self.token else "")


def script(home: Path, jupyter: str = "", image: str = "") -> str:
    """Return the batch script.

    jupyter   Jupyter's program; empty for a job that only waits
    image     the container image in which Jupyter runs; empty for none
    """
    if not jupyter:
        return _WAITS
    inside = (*container(image), "--container-env=JUPYTER_TOKEN_FILE,JUPYTER_RUNTIME_DIR")
    words = ["srun", *inside, jupyter] if image else [jupyter]
    return _SERVES.format(folder=shlex.quote(str(home / FOLDER)), program=shlex.join(words))


def container(image: str) -> tuple[str, ...]:
    """Return the options of srun for a step in a container image."""
    return f"--container-image={image}", "--container-mount-home", "--no-container-remap-root"


def find_jupyter(home: Path) -> str:
    """Return the user's Jupyter: of the active virtual environment, of ~/venv, or on PATH. Raise SlurmError."""
    environments = (os.environ.get("VIRTUAL_ENV", ""), str(home / "venv"))
    for path in [f"{folder}/bin/jupyter-lab" for folder in environments if folder.startswith("/")]:
        if os.access(path, os.X_OK):
            return path
    if path := shutil.which("jupyter-lab") or "":
        return path
    raise SlurmError(f"you have no JupyterLab; make one with '{MAKE_JUPYTER}', or name an image that has it (--image)")


def prepare(home: Path) -> str:
    """Make the folder of sessions, and return the name of a job's output in it, as sbatch reads it."""
    folder = home / FOLDER
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in folder.glob("*.out"):
            if path.stat().st_mtime < time.time() - _KEPT_SECONDS:
                path.unlink(missing_ok=True)
    except OSError as error:
        raise SlurmError(f"cannot make the folder {folder}: {error.strerror}") from None
    # sbatch replaces a % in a path.
    return f"{str(folder).replace('%', '%%')}/%j.out"


def read_server(home: Path, job: int) -> Server | None:
    """Return a job's Jupyter server; None until it runs. Raise SlurmError if it lets all users of the node in."""
    # Older releases of Jupyter write nbserver-PID.json. The file is not complete at once.
    for path in sorted((home / FOLDER / str(job)).glob("*server-*.json")):
        with suppress(OSError, ValueError), path.open(encoding="utf-8") as file:
            server = read(Server, json.loads(file.read(_MOST_BYTES)))
            if not server.token and not server.password:
                raise SlurmError(
                    "your Jupyter config turns the token off, so every user of the node could run programs as you; "
                    "remove 'token' from ~/.jupyter/jupyter_server_config.py"
                )
            return server
    return None
