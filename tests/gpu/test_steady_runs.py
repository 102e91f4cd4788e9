"""A measurement that flatters nobody: runs that scatter, whoever else is on the GPUs, and data that is wrong."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from components.validation.preflight.foreign import NOTHING
from tests.gpu.cluster import GpuCluster
from tests.gpu.machines import PLACE, PROGRAM
from tests.lab.cluster import eventually

FOLDER = PLACE / "disk/head/shared/home/ada/.tailrack/validation/box"
# Seconds of traffic at the one size that is judged.
ASKED = {**dict.fromkeys(("min_bytes", "max_bytes", "gate_bytes", "socket_max_bytes"), "8G"), "iterations": 100}
FLOORS = {"node": 1, "box": 1}
WRONG = f"""#!/bin/bash
# nccl-tests, which says in the second run that twelve elements were wrong.
if [ ! -e "$SLURM_SUBMIT_DIR/table.2" ] || [ -e "$SLURM_SUBMIT_DIR/table.3" ]; then exec {PROGRAM} "$@"; fi
{PROGRAM} "$@" | sed -E '/^ *[0-9]/s/ 0 *$/ 12/; s/(Out of bounds values *:) 0 OK/\\1 12 FAILED/'
"""


@pytest.fixture(scope="module", autouse=True)
def unguarded(cluster: GpuCluster) -> Iterator[None]:
    """A cluster without the look before each job, which keeps jobs, the measurement's too, off GPUs in others' use."""
    cluster.need(2)
    cluster.config["tailrack:health"] = {"enabled": False}
    yield
    del cluster.config["tailrack:health"]


def measure(cluster: GpuCluster, rerun: str, **nccl: Any) -> dict[str, Any]:
    """Measure c by itself; its result."""
    cluster.measured(nodes=["c"], nccl={"program": PROGRAM, **ASKED, **nccl}, floors_gb_per_s=FLOORS, rerun=rerun)
    found: dict[str, Any] = cluster.deployment().outputs()["validation"]["node"]["c"]
    return found


def written_since(path: Path, begun: float) -> bool:
    """Whether a file is there that was made since then; the job's folder is emptied before."""
    try:
        return path.stat().st_mtime > begun
    except OSError:
        return False


@contextmanager
def somebody_else(cluster: GpuCluster, *folders: str) -> Iterator[None]:
    """A process of another user's on all GPUs of c, that works in the second run of measurements by their folders.

    It is there all the time, stopped: to begin would take as long as a run.
    """
    machine, begun, over = cluster.machines["c"], time.time(), threading.Event()
    work = f"mpirun -np 1 --bind-to none {PROGRAM} -g {len(machine.gpus)} -b 512M -e 512M -n 1000000 -w 1 -c 0"
    cluster.run("c", f"systemd-run -q --unit=somebody-else --uid=admin --setenv=HOME=/home/admin {work}")
    memory, busy = (
        f"nvidia-smi --query-gpu={what} --format=csv,noheader,nounits" for what in ("memory.used", "utilization.gpu")
    )
    eventually(lambda: min(map(int, cluster.run("c", busy).split())) > 20, 90, "the other process is at work")
    signal = "systemctl kill --kill-whom=all -s {} somebody-else"
    cluster.run("c", signal.format("STOP"))

    def watch() -> None:
        for folder in folders:
            for name, word in (("table.2", "CONT"), ("table.3", "STOP")):
                while not over.wait(0.05) and not written_since(FOLDER / folder / name, begun):
                    pass
                machine.attempt(signal.format(word))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        machine.attempt("systemctl kill --kill-whom=all -s KILL somebody-else; systemctl reset-failed somebody-else")
        eventually(lambda: max(map(int, cluster.run("c", memory).split())) < 1500, 60, "the GPUs are free again")


def test_runs_that_scatter_are_measured_once_more_and_a_steady_second_time_passes(cluster: GpuCluster) -> None:
    with somebody_else(cluster, "node-c"):
        found = measure(cluster, "disturbed once")
    assert found["verdict"] == "PASS", found["reason"]
    assert "in a second measurement (the runs of the first gave" in found["reason"]
    assert found["spread"]["relative"] < 0.15


def test_unstable_runs_name_the_slow_run_and_the_processes_on_the_gpus(cluster: GpuCluster) -> None:
    with somebody_else(cluster, "node-c", "node-c-again"):
        found = measure(cluster, "disturbed twice")
    outputs = cluster.deployment().outputs()
    assert found["verdict"] == outputs["validation"]["box"]["verdict"] == "UNSTABLE", found["reason"]
    assert found["spread"]["relative"] > 0.15
    assert "run 2 is the slow one" in found["reason"]
    assert "Other use of the GPUs: c: GPU" in found["reason"]
    assert outputs.get("busbw_gb_per_s") is None
    seen = [each for each in outputs["validation"]["box"]["preflight"]["c"] if each["check"] == "GPU in use"]
    # One finding for all GPUs of a process, if the driver shows processes to those in another namespace.
    assert len(seen) in (1, len(cluster.machines["c"].gpus))
    assert all("all_reduce_perf" in each["seen"] or "not visible from here" in each["seen"] for each in seen)


def test_the_row_at_the_gate_is_the_judged_runs_and_a_sound_job_says_nothing_of_pairings(cluster: GpuCluster) -> None:
    found = measure(cluster, "alone")
    assert found["verdict"] == "PASS", found["reason"]
    (row,) = found["rows"]
    assert row["out_of_place"]["busbw_gb_per_s"] == found["busbw_gb_per_s"] == sorted(found["spread"]["runs"])[1]
    assert "reachable pairing" not in (FOLDER / "node-c/output").read_text()
    assert {path.read_text() for path in FOLDER.glob("node-c/beside.*")} == {f"c: {NOTHING}\n"}


def test_wrong_data_of_the_second_run_is_quoted_and_there_is_no_headline_over_it(cluster: GpuCluster) -> None:
    program = cluster.machines["c"].tree / "usr/local/bin/wrong-in-run-2"
    program.write_text(WRONG)
    program.chmod(0o755)
    found = measure(cluster, "wrong data", program="/usr/local/bin/wrong-in-run-2")
    assert found["verdict"] == "FAIL", found["reason"]
    assert "run 2 at 8 GiB: 12 in place; run 2 ends with 'Out of bounds values : 12'" in found["reason"]
    assert "pairing" not in found["reason"]
    assert cluster.deployment().outputs().get("busbw_gb_per_s") is None
