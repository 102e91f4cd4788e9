"""Settings of the benchmark check (components/roles/health/deep_check.py), which measures single nodes. No pulumi."""

from __future__ import annotations

import json
from typing import Any

from components.measurement.plan import RUNS, START_SECONDS, gpu_part, nccl_job, prepare_options, validation_job
from components.roles.cluster_settings import ClusterSettings
from components.settings.types import NODE
from components.settings.validation import Nccl, Validation, sizes_of
from components.validation.expected import ANY_RDMA
from components.validation.model import Backend, Measurement
from components.validation.results import settings_json

SCOPE = "deep-check"
LEAST_ITERATIONS = 20
# All other waiting jobs run first.
NICE = "--nice=1000000"


def deep_check_text(settings: ClusterSettings) -> str:
    """Return JSON for /etc/tailrack/deep-check.json; empty if the config has no benchmark check."""
    check, validation = settings.health.deep_check, settings.validation
    if check is None:
        return ""
    # Only the time limit of the jobs differs from the measurement.
    validation = validation.model_copy(update={"time_limit_minutes": check.minutes})
    check_settings = {
        "user": settings.users[0].name,
        "every_hours": check.every_hours,
        "at_once": check.at_once,
        "minutes": check.minutes,
        "dcgm_level": check.dcgm_level,
        "floor": validation.floors_gb_per_s.get(NODE),
        "plan": _plan(validation),
    }
    return json.dumps(check_settings, sort_keys=True)


def _plan(validation: Validation) -> dict[str, object]:
    """Return a measurement's plan (plan.py) without the node. It has only the gate size, which is the one judged."""
    ranks, nccl = max(2, validation.ranks_per_node), validation.nccl

    def at_gate(section: Validation | Nccl, backend: Backend, **more: Any) -> Measurement:
        gate = {"min_bytes": section.gate_bytes, "max_bytes": section.gate_bytes}
        return Measurement(backend=backend, **{**sizes_of(section), **gate, "ranks": ranks, "nodes": 1, **more})

    # Without MPI: all ranks are on one node, and its TCP does not work there. A very short run is not precise.
    cpu = at_gate(validation, "tcp-cpu", iterations=max(LEAST_ITERATIONS, validation.iterations))
    gpu = at_gate(nccl, "nccl-tests", collective=nccl.collective, runs=RUNS)
    minutes = validation.time_limit_minutes
    on_gpus = gpu_part(validation, gpu, nccl_job(SCOPE, validation.nccl, minutes), {})
    on_gpus["more_collectives"] = ()
    on_gpus["nccl_job"] = _behind_all_jobs(on_gpus["nccl_job"])
    # The command line of sbatch names the node.
    cpu_job = _behind_all_jobs(validation_job(SCOPE, ("none",), cpu, minutes, 1))
    run_seconds = minutes * 60 + 60
    return {
        "spans": False,
        "cpu": settings_json(cpu),
        "cpu_job": cpu_job,
        "gate_job": cpu_job,
        "ranks_per_node": ranks,
        "floor": None,
        "node_floor": None,
        "interface": "",
        "expected_interface": "",
        "rdma": ANY_RDMA,
        "prepare_options": [*prepare_options(SCOPE, validation), NICE],
        "start_seconds": START_SECONDS,
        "run_seconds": run_seconds,
        # Preparation, the measurement, and its repetition if the runs differ.
        "measurement_seconds": 3 * (START_SECONDS + run_seconds),
        **on_gpus,
    }


def _behind_all_jobs(job: str) -> str:
    first, rest = job.split("\n", 1)
    return f"{first}\n#SBATCH {NICE}\n{rest}"
