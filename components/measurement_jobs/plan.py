"""The plan of a measurement, one JSON object for the program on the head node, and the program.

components/validation/measurement_run.py reads the plan. Only the available nodes are not in it. No pulumi.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from components.roles.program import command_line
from components.roles.role import render
from components.settings.types import AnyNodes
from components.settings.validation import Nccl, Validation, sizes_of
from components.steps import composition
from components.validation.groups import by_mpi_release, groups_of
from components.validation.model import Measurement
from components.validation.results import settings_json

START_SECONDS = 60  # after the wait for nodes: Slurm starts a job whose nodes are free at its next scheduling cycle
RUNS = 3  # of a measurement on GPUs at its gate size
# nccl-tests 2.19.6. The checksum covers the names and contents of the commit's files.
SOURCE = "https://github.com/NVIDIA/nccl-tests/archive/a0b82b2260cf5152b9f8c061bbf7eaf0ba096432.tar.gz"
SOURCE_SHA256 = "content:f04d111f74c9c5cb14454f2b223aaafd7edb23b9671a93f3a098314413db04a5"


@dataclass(frozen=True)
class Node:
    """A node of a scope.

    gpus   its GPUs, such as h200:8, or empty
    mpi    its releases of Open MPI and PMIx, such as 5-pmix5 (groups.py); empty if unknown
    """

    site: str
    address: str
    gpus: str
    mpi: str = ""


@cache
def script(command: str = "measure") -> composition.Script:
    """Return the script of a measurement's step. `command`: that of the program that runs the jobs."""
    return composition.single("components.measurement_jobs.validate").with_texts({"driver": command_line(command)})


def mpi_of(nodes: Mapping[str, Node], settings: Validation) -> dict[str, str]:
    """Return the nodes' releases of Open MPI and PMIx; none if a program or an image brings its own."""
    has_mpi = settings.nccl.image or settings.nccl.program
    return {} if has_mpi else {name: node.mpi for name, node in nodes.items()}


def mpi_apart(nodes: Mapping[str, Node], settings: Validation, measurement: Measurement) -> dict[str, tuple[str, ...]]:
    """Return nodes by their releases of Open MPI and PMIx if these changed the measurement, else nothing."""
    on_gpus = measurement.backend == "nccl-tests"
    mpi = mpi_of(nodes, settings) if on_gpus else {name: node.mpi for name, node in nodes.items()}
    # Between sites, CPUs are always measured without MPI.
    spans = len({node.site for node in nodes.values()}) > 1
    groups = by_mpi_release(mpi, [name for name, node in nodes.items() if node.gpus or not on_gpus])
    return groups if len(groups) > 1 and (on_gpus or not spans) else {}


def cpu_measurement(measurement: Measurement, nodes: Mapping[str, Node]) -> Measurement:
    """Return the measurement of the nodes' CPUs, without MPI if their releases of it are incompatible."""
    apart = len(by_mpi_release({name: node.mpi for name, node in nodes.items()}, nodes)) > 1
    return replace(measurement, backend="tcp-cpu") if apart else measurement


def gpu_measurement(nodes: Mapping[str, Node], settings: Validation) -> Measurement | None:
    """Return the measurement of the GPUs of a scope's largest group; None without such a group."""
    gpus = {name: node.gpus for name, node in nodes.items()}
    sites = {name: node.site for name, node in nodes.items()}
    nccl = settings.nccl
    groups, _ = groups_of(gpus, sites, nccl.gpus_per_node, mpi_of(nodes, settings))
    if not groups:
        return None
    return Measurement(
        backend="nccl-tests",
        **sizes_of(nccl),
        collective=nccl.collective,
        runs=RUNS,
        ranks=groups[0].ranks,
        nodes=len(groups[0].nodes),
    )


def plan(
    scope: str,
    nodes: Mapping[str, Node],
    settings: Validation,
    on_cpus: Measurement,
    floors: tuple[float | None, float | None],
    network: Mapping[str, Any],
    *,
    preflight: bool,
) -> dict[str, Any]:
    """Return the plan of a scope's measurement.

    on_cpus     the measurement if there are no GPUs
    floors      the config's floors for the scope and for single nodes; GB/s
    network     the `interface`, `rdma` and `fabric` of components/cluster/nccl_validation.py
    preflight   whether to check the nodes first
    """
    sites = {name: node.site for name, node in nodes.items()}
    spans = len(set(sites.values())) > 1
    on_cpus = cpu_measurement(on_cpus, nodes)
    on_gpus = gpu_measurement(nodes, settings)
    # The plan of a benchmark check has no node.
    switches = len(set(sites.values())) or 1
    cpu_job = partial(validation_job, scope, minutes=settings.time_limit_minutes, switches=switches)
    return {
        "scope": scope,
        "spans": spans,
        "sites": sites,
        "gpus": {name: node.gpus for name, node in nodes.items()},
        "about": {
            "nodes": {
                name: {"address": node.address, "site": node.site, "gpus": node.gpus} for name, node in nodes.items()
            },
            "fabric": network["fabric"],
        },
        "cpu": settings_json(on_cpus),
        "cpu_job": cpu_job(on_cpus),
        "gate_job": cpu_job(on_cpus.at_gate()),
        "ranks_per_node": settings.ranks_per_node,
        "floor": floors[0],
        "node_floor": floors[1],
        # Inside a site, jobs get their interface by default.
        "interface": network["interface"] if spans else "",
        "expected_interface": network["interface"],
        "rdma": network["rdma"],
        # A command for jobs (components/validation/job_files.py).
        "preflight": "preflight" if preflight else "",
        "prepare_options": prepare_options(scope, settings),
        "start_seconds": START_SECONDS,
        "run_seconds": run_seconds(settings),
        **any_nodes(settings.nodes),
        "measurement_seconds": measurement_seconds(settings),
        **(gpu_part(settings, on_gpus, scope, mpi_of(nodes, settings)) if on_gpus else {"nccl": None}),
    }


def any_nodes(nodes: Sequence[str]) -> dict[str, int]:
    """Return the part of a plan and of a measurement's settings for nodes without names."""
    return {"any_nodes": nodes.most} if isinstance(nodes, AnyNodes) else {}


def run_seconds(settings: Validation) -> int:
    """Return the seconds for a job, with those that Slurm needs to end it at its limit."""
    return settings.time_limit_minutes * 60 + 60


def measurement_seconds(settings: Validation) -> int:
    """Return the seconds for all jobs of a scope: preparation, single nodes, groups, and the search for slow nodes."""
    return 4 * run_seconds(settings)


def gpu_part(settings: Validation, measurement: Measurement, scope: str, mpi: Mapping[str, str]) -> dict[str, Any]:
    """Return the part of a plan for GPUs."""
    measurement_json = settings_json(measurement)
    del measurement_json["ranks"], measurement_json["nodes"]
    return {
        "nccl": {
            **measurement_json,
            "socket_max_bytes": settings.nccl.socket_max_bytes,
            "most_gpus": settings.nccl.gpus_per_node,
            "mpi": dict(mpi),
        },
        "more_collectives": settings.nccl.more_collectives,
        "gpus_per_process": settings.nccl.gpus_per_process,
        "nccl_job": nccl_job(scope, settings.nccl, settings.time_limit_minutes),
        "build": _build_environment(settings),
    }


def prepare_options(scope: str, settings: Validation) -> list[str]:
    """Return the options for sbatch of the job that prepares a measurement."""
    partition, minutes = settings.nccl.partition or "all", settings.time_limit_minutes
    return [f"--job-name=prepare-{scope}", f"--partition={partition}", f"--time={minutes}"]


def _build_environment(settings: Validation) -> str:
    """Return the variables that build the program on the share; empty if the nodes or an image have it."""
    nccl = settings.nccl
    if nccl.program or nccl.image:
        return ""
    collectives = " ".join((nccl.collective, *nccl.more_collectives))
    return (
        f"TAILRACK_SOURCE={shlex.quote(nccl.source or SOURCE)}\n"
        f"TAILRACK_SHA256={shlex.quote(nccl.source_sha256 or SOURCE_SHA256)}\n"
        f"TAILRACK_COLLECTIVES={shlex.quote(collectives)}"
    )


def validation_job(scope: str, measurement: Measurement, minutes: int, switches: int) -> str:
    """Return the text for sbatch of a measurement on CPUs.

    scope      a site's name or `cross-site`
    minutes    the job's time limit
    switches   the number of sites that the job may span
    """
    return render(
        "measurement_jobs/templates/validation_job.sh.j2",
        scope=scope,
        measurement=measurement,
        ranks_per_node=measurement.ranks // measurement.nodes,
        minutes=minutes,
        switches=switches,
    )


def nccl_job(scope: str, settings: Nccl, minutes: int) -> str:
    """Return the text for sbatch of a measurement on GPUs. The arguments of sbatch give the nodes and sizes.

    minutes    the job's time limit
    """
    return render(
        "measurement_jobs/templates/nccl_job.sh.j2",
        scope=scope,
        partition=settings.partition or "all",
        minutes=minutes,
        exports=[(name, shlex.quote(value)) for name, value in sorted(settings.exports.items())],
        program=shlex.quote(settings.program),
        # An image has nccl-tests on its PATH.
        is_on_path=bool(settings.image and not settings.program),
        is_built=not (settings.image or settings.program),
        collective=settings.collective,
        options=[shlex.quote(option) for option in settings.srun_options],
        image=shlex.quote(settings.image) if settings.image else "",
        factor=settings.factor,
        iterations=settings.iterations,
        warmup=settings.warmup,
    )
