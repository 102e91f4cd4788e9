"""How a node is measured by itself: by a program of the user who submits the jobs, whose words are read."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from components.validation.became_slow import Measured, measured
from components.validation.groups import count
from components.validation.model import Measurement
from components.validation.preflight.findings import read_lines
from components.validation.results import Conditions, judge_scope
from components.validation.slurm_nodes import Node

Told = Mapping[str, Any]
LIB = Path("/usr/local/lib/tailrack/deep-check")
PRIVATE = Path("/run/tailrack-private")
# Beyond a node's own jobs.
SPARE_SECONDS = 120


def asked_of(told: Told, node: Node) -> Mapping[str, Any]:
    """Return what is asked of a node."""
    plan = told["plan"]
    asked: Mapping[str, Any] = plan["nccl"] if _gpus(told, node) > 1 else plan["cpu"]
    return asked


def limit_seconds(told: Told) -> int:
    """How long all jobs of a node may take."""
    return int(told["plan"]["measurement_seconds"]) + SPARE_SECONDS


def _gpus(told: Told, node: Node) -> int:
    """How many GPUs of it take part; 0 where they are of several kinds, which no figure stands for."""
    return 0 if "," in node.gpus else count(node.gpus, told["plan"]["nccl"]["most_gpus"])


def order(told: Told, node: Node, *, dcgm: bool) -> dict[str, Any]:
    """Return what the user's program is told (components/validation/measurement_run.py)."""
    plan = dict(told["plan"])
    level = told["dcgm_level"] if dcgm and node.gpus else 0
    alone = {"address": node.address, "site": "", "gpus": node.gpus}
    # Half a minute of its job is for the rest.
    about = {"fabric": {}, "dcgm_level": level, "dcgm_seconds": told["minutes"] * 60 - 30}
    plan |= {
        "scope": f"deep-check-{node.name}",
        "sites": {node.name: ""},
        "about": {**about, "nodes": {node.name: alone}},
    }
    plan |= {"gpus": {node.name: node.gpus}, "preflight": _text("dcgm.py") if level else ""}
    if _gpus(told, node) < 2:
        plan |= {"nccl": None, "gpus": {node.name: node.gpus if _gpus(told, node) else ""}}
        plan["prepare_files"] = {"job.sh": plan["prepare_files"]["job.sh"], **_facts(plan)}
    jobs = {"cpu_job": plan.pop("cpu_job"), "cpu_files": {"all_reduce_perf.py": _text("all_reduce_perf.py")}}
    return {"program": _text("driver.py"), "plan": plan, "nodes": [node.name], "absent": {}, "jobs": jobs}


def _facts(plan: Mapping[str, Any]) -> dict[str, str]:
    """The files of the job before a measurement, but for those that build the program for GPUs."""
    name = "collect_fabric_facts.py"
    return {name: plan["prepare_files"][name]}


def by_the_user(told: Told, node: Node, reservation: str, dcgm: bool) -> Mapping[str, Any] | None:
    """Have a node measured, and return what the user's program says; None where it says nothing."""
    # That program reads what lies there already, and no pipe of root's.
    with tempfile.TemporaryFile(dir=PRIVATE, mode="w+") as file:
        json.dump(order(told, node, dcgm=dcgm), file)
        file.seek(0)
        done = subprocess.run(
            [str(LIB / "run"), told["user"], str(limit_seconds(told)), reservation],
            stdin=file, stdout=subprocess.PIPE, text=True, errors="replace", check=False,
        )  # fmt: skip
    try:
        said = json.loads(done.stdout)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) and done.returncode == 0 else None


def read(told: Told, node: Node, said: Mapping[str, Any] | None) -> Measured:
    """Read it: a user's words, which may be anything."""
    if said is None:
        return Measured(None, doubt="the measurement broke off, see above")
    gpus, asked = _gpus(told, node), dict(asked_of(told, node))
    for word in ("socket_max_bytes", "most_gpus", "mpi"):
        asked.pop(word, None)
    whole = Measurement(**{"ranks": max(2, gpus), "nodes": 1, **asked})
    # A floor for nodes by themselves is one of their GPUs.
    floor = told["floor"] if gpus > 1 else None
    result, _ = judge_scope(whole, said, Conditions(floor, floor, "", spans=False), read_lines)
    return measured(result, result["preflight"].get(node.name, ()), on_gpus=gpus > 1)


def _text(name: str) -> str:
    return (LIB / name).read_text(encoding="utf-8")
