"""What is on the cluster at one moment, as watchers get it: pure, from what slurmctld says of jobs and of nodes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypedDict

from components.roles.tailrack_command.job import Job
from components.roles.tailrack_command.wait_reason import Why, why_it_waits
from components.validation.node_names import node_names
from components.validation.preflight.findings import plain
from components.validation.slurm_nodes import Node

# Between the end of one look and the next: a slurmctld that is slow is asked less often.
EVERY_SECONDS = 5
_SITE = "site-"
_GPUS = re.compile(r"(?:^|,)gres/gpu(:[^=,]+)?=([0-9]+)")


class Row(TypedDict):
    """A job that waits or runs; all texts are one printable line.

    job      its number, `12_3` for a task of an array
    nodes    names in Slurm's short form; empty while it waits
    count    of nodes that it asks for, or has; gpus: of GPUs in all
    start    Unix seconds; 0 while it waits
    sites    where its nodes are
    why      why it waits, in words; empty when it runs
    """

    job: str
    name: str
    user: str
    state: str
    nodes: str
    count: int
    gpus: int
    start: int
    sites: list[str]
    why: str


class Snapshot(TypedDict):
    """time in Unix seconds; out: nodes that take no work; gpus: of all nodes; error: empty, or why it is old."""

    time: float
    jobs: list[Row]
    nodes: int
    out: list[str]
    gpus: int
    error: str


def snapshot(jobs: Iterable[Job], nodes: Sequence[Node], sites: Mapping[str, str], now: float) -> Snapshot:
    """Return what watchers are shown: jobs that run, the oldest first, then those that wait.

    sites   of nodes, by name; a node without one is left out
    """
    out = [node for node in nodes if node.out]
    running = sorted((job for job in jobs if job.runs), key=lambda job: (job.start, job.number))
    waiting = sorted((job for job in jobs if job.waits), key=lambda job: (job.number, job.task or 0))
    return {
        "time": now,
        "jobs": [_row(job, out, sites) for job in (*running, *waiting)],
        "nodes": len(nodes),
        "out": [plain(node.name) for node in out],
        "gpus": sum(int(number) for node in nodes for number in re.findall(r":([0-9]+)(?:, |$)", node.gpus)),
        "error": "",
    }


def read_sites(text: str) -> dict[str, str]:
    """Sites of nodes from what scontrol printed of them. Raises ValueError for what is not of its form."""
    found = {}
    try:
        for node in json.loads(text)["nodes"]:
            features = node.get("features") or []
            listed = features if isinstance(features, list) else str(features).split(",")
            named = (str(each).removeprefix(_SITE) for each in listed if str(each).startswith(_SITE))
            if site := next(named, ""):
                found[str(node["name"])] = site
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("no nodes as Slurm prints them") from error
    return found


def gpus_of(asked: str) -> int:
    """GPUs of `cpu=2,gres/gpu=8,gres/gpu:h200=8`: kinds are counted where the whole is not there."""
    found: list[tuple[str, str]] = _GPUS.findall(asked)
    whole = [int(number) for kind, number in found if not kind]
    return whole[0] if whole else sum(int(number) for _, number in found)


def brief(why: Why) -> str:
    """The first sentence, and where that only announces others the one after it."""
    first, *others = (" ".join(sentence.split()) for sentence in why.sentences)
    said = f"{first} {others[0]}" if first.endswith(":") and others else first
    return said.removeprefix("It ").rstrip(".")


def _row(job: Job, out: Sequence[Node], sites: Mapping[str, str]) -> Row:
    names = _names(job.nodes)
    words = [job.state, *(flag for flag in job.flags[1:] if flag == "COMPLETING")]
    return {
        "job": job.title,
        "name": plain(job.name),
        "user": plain(job.user or str(job.user_number)),
        "state": plain(words[-1].lower().replace("_", " ")),
        "nodes": plain(job.nodes),
        "count": job.node_count or len(names),
        "gpus": gpus_of(job.resources),
        "start": 0 if job.waits else job.start,
        "sites": sorted({plain(sites[name]) for name in names if name in sites}),
        # Of the nodes a first sentence names those alone that are out; all of them for each job would be slow.
        "why": plain(brief(why_it_waits(job, out, _names))) if job.waits else "",
    }


def _names(short: str) -> list[str]:
    """None where they are in a form of Slurm's that is not known here."""
    try:
        return node_names(short)
    except ValueError:
        return []


def read_snapshot(text: str) -> Snapshot:
    """Read what the reader wrote. Raises ValueError for what is not of its form."""
    told: Any = json.loads(text)
    if not isinstance(told, dict) or told.keys() != Snapshot.__annotations__.keys():
        raise ValueError("no snapshot")
    found: Snapshot = told  # type: ignore[assignment]
    return found
