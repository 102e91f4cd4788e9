"""What slurmctld says, asked by scontrol; releases from 23.11 on."""

from __future__ import annotations

import os
import pwd
import subprocess
import time

from components.roles.tailrack_command.job import Job, read_jobs
from components.validation.slurm_nodes import Node, read_nodes

LIMIT_SECONDS = 30


class SlurmError(Exception):
    """slurmctld did not answer, or refused: what to tell a person."""


def nodes(*names: str) -> list[Node]:
    """Ask slurmctld for all nodes, or for some. Raises SlurmError, also for a node that it does not know."""
    said = scontrol("show", "nodes", *([",".join(names)] if names else []), "--json")
    try:
        found = read_nodes(said)
    except ValueError:
        raise SlurmError("scontrol does not print nodes as JSON here; see 'scontrol show nodes --json'") from None
    there = {node.name for node in found}
    # scontrol leaves out those that it does not know. A name may be Slurm's short form of several.
    if short := [name for name in names if name not in there]:
        missing = [name for name in expand(",".join(short)) if name not in there]
        if missing:
            raise SlurmError(f"there is no node {', '.join(missing)}; 'tailrack nodes' shows all of them")
    return found


def jobs(name: str) -> list[Job]:
    """Ask slurmctld for a job, or for all tasks of an array; what it forgot the books may know. Raises SlurmError."""
    try:
        said = scontrol("show", "job", name, "--json")
    except SlurmError as error:
        if "invalid job id" not in str(error).lower():
            raise
        said = '{"jobs": []}'
    try:
        found = read_jobs(said)
    except ValueError:
        raise SlurmError("scontrol does not print jobs as JSON here; see 'scontrol show job --json'") from None
    found = found or _in_books(name)
    if not found:
        raise SlurmError(
            f"there is no job {name}, or it ended minutes ago and nobody keeps books (tailrack:accounting); "
            "'squeue' shows those that wait and run"
        )
    return found


def _in_books(name: str) -> list[Job]:
    """A job that slurmctld has forgotten, with what the accounting keeps of it."""
    said = _sacct(name, "JobIDRaw,JobID,JobName,User,State,ExitCode,NodeList,Partition,ReqTRES,TimelimitRaw")
    found = []
    for line in said.splitlines():
        fields = line.split("|")
        if len(fields) != 10 or not fields[0].isdecimal():
            continue
        raw, title, called, user, state, code, nodes, partition, asked, minutes = fields
        array, _, task = title.partition("_")
        status, _, signal = code.partition(":")
        found.append(
            Job(
                int(raw),
                called,
                user,
                0,
                (state.split(" ")[0],),
                array=int(array) if array.isdecimal() else 0,
                task=int(task) if task.isdecimal() else None,
                nodes=nodes,
                partition=partition,
                asked=asked,
                minutes=int(minutes) if minutes.isdecimal() else 0,
                status=int(status) if status.isdecimal() else 0,
                signal=int(signal) if signal.isdecimal() else 0,
            )
        )
    return found


def cancelled_by(name: str) -> str:
    """Who cancelled a job, where the books know; else empty."""
    _, _, number = _sacct(name, "State").partition("\n")[0].partition("CANCELLED by ")
    if not number.strip().isdecimal():
        return ""
    try:
        return pwd.getpwuid(int(number)).pw_name
    except (KeyError, OverflowError):
        return f"user {number.strip()}"


def expand(short: str) -> list[str]:
    """Names of nodes from Slurm's short form of them. Raises SlurmError."""
    return scontrol("show", "hostnames", short).split()


def _sacct(name: str, fields: str) -> str:
    """What the books say; empty where there are none."""
    try:
        return _run("sacct", "-X", "-n", "-P", "-j", name, "-o", fields)
    except SlurmError:
        return ""


def used(begin: int, end: int) -> list[tuple[str, int, int]] | None:
    """Nodes in Slurm's short form, and from when to when a job had them, of all jobs between two times.

    None where nobody keeps books, or they do not answer.
    """
    span = ("-S", _moment(begin), "-E", _moment(end))
    try:
        said = _run("sacct", "-a", "-X", "-n", "-P", *span, "-o", "NodeList,Start,End", SLURM_TIME_FORMAT="%s")
    except SlurmError:
        return None
    rows = [line.rsplit("|", 2) for line in said.splitlines()]
    return [
        (row[0], int(row[1]), int(row[2]) if row[2].isdecimal() else end)
        for row in rows
        if len(row) == 3 and row[1].isdecimal() and row[0] != "None assigned"
    ]


def _moment(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(seconds))


def scontrol(*words: str) -> str:
    """Run scontrol and return what it prints. Raises SlurmError with what it says."""
    return _run("scontrol", *words)


def _run(*words: str, **environment: str) -> str:
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError(f"there is no {words[0]} here; run it on the head node") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"slurmctld has not answered for {LIMIT_SECONDS} s; see 'journalctl -u slurmctld'") from None
    if done.returncode != 0:
        said = " ".join((done.stderr or done.stdout).split())
        raise SlurmError(f"{' '.join(words[:3])}: {said or f'exit status {done.returncode}'}")
    return done.stdout
