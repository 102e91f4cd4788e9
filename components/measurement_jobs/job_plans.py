"""Measurements by one job over all chosen nodes: the training benchmark and the storage measurement. No pulumi."""

import json
import math
import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from components.measurement_jobs.plan import (
    RUNS,
    START_SECONDS,
    Node,
    any_nodes,
    gpu_part,
    plan,
)
from components.roles.cluster_settings import ClusterSettings
from components.roles.role import render
from components.settings.types import NODE
from components.settings.validation import (
    SCRATCH,
    SHARE,
    StorageMeasurement,
    Training,
    Validation,
    floors_at,
    sizes_of,
)
from components.validation.groups import count
from components.validation.model import Measurement
from components.validation.storage_figures import FIGURES, LATENCY
from components.validation.storage_node import CHECKPOINT_SECONDS, IN_JOB, IN_MOUNT, IN_SCRATCH
from components.validation.storage_verdict import judge_storage
from components.validation.training_verdict import judge_training
from components.validation.transport import ANY_RDMA

TRAINING, STORAGE = "training", "storage"
# Versions of the figures. Results of another version are not comparable: they are measured again.
_TRAINING_VERSION, _STORAGE_VERSION = 1, 1
_NO_FIGURES = ("nodes", "floor_images_per_second", "time_limit_minutes")  # settings that change no result


@dataclass(frozen=True)
class JobPlan:
    """A measurement by one job.

    kind         its type in the state
    scope        name of its result files; a site's name has no '_', so it is no site's
    command      the program's command that runs the job (components/validation/job_runs.py)
    nodes        names of the nodes to measure
    settings     those that change the result
    any_nodes    the part of the plan for nodes without names
    job          the text for sbatch, whose arguments give the nodes
    run_seconds  time for the job, with that which Slurm needs to end it at its limit
    in_state     floors for the state, so that cli/changes_to_allow finds one that was removed or lowered: `limits` has
                 those whose higher values are weaker
    of_nodes     returns the part of the plan that depends on the nodes
    judge        returns the result of the step's report
    """

    kind: str
    scope: str
    command: str
    nodes: Collection[str]
    settings: Mapping[str, Any]
    any_nodes: Mapping[str, int]
    job: str
    run_seconds: int
    in_state: Mapping[str, Any]
    of_nodes: Callable[[Mapping[str, Node]], Mapping[str, Any]]
    judge: Callable[[Mapping[str, Any]], Mapping[str, Any]]

    def plan(self, nodes: Mapping[str, Node]) -> dict[str, Any]:
        """Return the plan for the head node's program."""
        return {
            "scope": self.scope,
            "sites": {name: node.site for name, node in nodes.items()},
            "start_seconds": START_SECONDS,
            "run_seconds": self.run_seconds,
            "job": self.job,
            **self.of_nodes(nodes),
            **self.any_nodes,
        }


def job_plans(settings: ClusterSettings, sites: Mapping[str, str]) -> dict[str, JobPlan]:
    """Return the measurements that the config turns on, in their order. `sites`: of all nodes that run jobs."""
    validation = settings.validation

    def chosen(listed: Sequence[str]) -> dict[str, str]:
        wanted = {*(listed or validation.nodes or sites)}
        return {name: site for name, site in sites.items() if name in wanted}

    plans = {}
    if training := validation.training:
        source = validation.floors_from or "config"
        any_of = any_nodes(training.nodes or validation.nodes)
        plans[TRAINING] = _training(training, chosen(training.nodes), any_of, source)
    if storage := validation.storage:
        any_of = any_nodes(storage.nodes or validation.nodes)
        plans[STORAGE] = _storage(storage, targets(settings), chosen(storage.nodes), any_of, {*sites.values()})
    return plans


def _training(settings: Training, nodes: Mapping[str, str], any_of: Mapping[str, int], source: str) -> JobPlan:
    floor = settings.floor_images_per_second
    figures = {name: value for name, value in settings.model_dump().items() if name not in _NO_FIGURES}
    return JobPlan(
        kind="TrainingBenchmark",
        scope="training_benchmark",
        command="measure-training",
        nodes=nodes,
        settings={**figures, "version": _TRAINING_VERSION},
        any_nodes=any_of,
        job=render(
            "measurement_jobs/templates/training_job.sh.j2",
            minutes=settings.time_limit_minutes,
            python=shlex.quote(settings.python or ("python3" if settings.image else "/usr/bin/python3")),
            image=shlex.quote(settings.image) if settings.image else "",
            warmup=settings.warmup,
            steps=settings.steps,
        ),
        run_seconds=settings.time_limit_minutes * 60 + 60,
        in_state={"floors": {} if floor is None else {TRAINING: floor}, "scopes": [TRAINING]},
        of_nodes=lambda nodes: {"gpus": {name: node.gpus for name, node in nodes.items()}},
        judge=lambda report: judge_training(report, floor, source),
    )


@dataclass(frozen=True)
class Target:
    """Storage to measure.

    name     its name in floors and outputs
    path     its path on nodes
    place    where a node measures (components/validation/storage_node.py)
    shared   whether several nodes see the same files
    sites    sites whose nodes have it; empty for all
    """

    name: str
    path: str
    place: str
    shared: bool
    sites: tuple[str, ...] = ()

    def is_at(self, site: str) -> bool:
        return not self.sites or site in self.sites


def targets(settings: ClusterSettings) -> tuple[Target, ...]:
    """Return the storage that a cluster measures."""
    scratch, homes = settings.scratch.folder, settings.storage.homes
    return (
        Target(SHARE, homes.path if homes else settings.storage.mount, IN_JOB, shared=True),
        *(Target(mount.path, mount.path, IN_MOUNT, True, mount.sites or ()) for mount in settings.storage.mounts),
        *([Target(SCRATCH, scratch, IN_SCRATCH, shared=False)] if scratch else []),
    )


def _storage(
    settings: StorageMeasurement,
    measured: tuple[Target, ...],
    nodes: Mapping[str, str],
    any_of: Mapping[str, int],
    all_sites: Collection[str],
) -> JobPlan:
    # Limit of one part on one node: a slow disk needs long to finish what has begun.
    step_seconds = 2 * settings.seconds + 120
    # Nodes measure a shared target in turn, the others at the same time. The time is twice the expected one, and two
    # whole steps for nodes that hang.
    parts = sum(len(nodes) if target.shared else 1 for target in measured)
    saving = 2 * len(measured) * CHECKPOINT_SECONDS if settings.checkpoint_size else 0
    minutes = math.ceil((parts * (2 * settings.seconds + 10) + 2 * step_seconds + saving) / 60)
    paths = {
        name: {target.name: target.path for target in measured if target.is_at(site)} for name, site in nodes.items()
    }
    floors = {
        name: {target: floors_at(settings.floors, target, site) for target in paths[name]}
        for name, site in nodes.items()
    }
    saved = {"checkpoint_size": settings.checkpoint_size} if settings.checkpoint_size else {}
    sizes = {"size": settings.size, "seconds": settings.seconds}

    def of_nodes(nodes: Mapping[str, Node]) -> dict[str, Any]:
        def on(target: Target) -> dict[str, Any]:
            ranks = {name: count(nodes[name].gpus) or 1 for name in sorted(nodes) if target.is_at(nodes[name].site)}
            return {**asdict(target), **sizes, "checkpoint": settings.checkpoint_size or 0, "ranks": ranks}

        # One node is enough, and busy nodes do not prevent the measurement of the others.
        return {"each_node": True, "targets": [on(target) for target in measured], "step_seconds": step_seconds}

    return JobPlan(
        kind="StorageMeasurement",
        scope="storage_measurement",
        command="measure-storage",
        nodes=nodes,
        settings={**sizes, **saved, "version": _STORAGE_VERSION, "targets": [asdict(target) for target in measured]},
        any_nodes=any_of,
        job=render("measurement_jobs/templates/storage_job.sh.j2", minutes=minutes),
        run_seconds=minutes * 60 + 60,
        in_state=_floors_in_state(settings, measured, all_sites),
        of_nodes=of_nodes,
        judge=lambda report: judge_storage(report, paths, floors, settings.size),
    )


def _floors_in_state(
    settings: StorageMeasurement, measured: Sequence[Target], sites: Collection[str]
) -> dict[str, dict[str, float] | list[str]]:
    floors: dict[str, float] = {}
    limits: dict[str, float] = {}
    places = [(target.name, site) for target in measured for site in sorted(sites) if target.is_at(site)]
    for target, site in places:
        for name, value in floors_at(settings.floors, target, site).items():
            (limits if name == LATENCY else floors)[f"{target} at {site}: {name}"] = value
    scopes = [f"{target} at {site}: {name}" for target, site in places for name in FIGURES]
    return {"floors": floors, "limits": limits, "scopes": scopes}


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
    # Without MPI: all ranks are on one node, and its TCP does not work there. A very short run is not precise.
    sizes = {**sizes_of(validation), "iterations": max(LEAST_ITERATIONS, validation.iterations)}
    cpu = Measurement(backend="tcp-cpu", **sizes, ranks=ranks, nodes=1).at_gate()
    gpu = Measurement(backend="nccl-tests", **sizes_of(nccl), collective=nccl.collective, ranks=ranks, nodes=1)
    gpu = gpu.at_gate(RUNS)
    # The command line of sbatch names the node.
    network = {"interface": "", "rdma": ANY_RDMA, "fabric": {}}
    check = plan(SCOPE, {}, validation, cpu, (None, None), network, preflight=False)
    check |= gpu_part(validation, gpu, SCOPE, {})
    return {
        **check,
        **{name: _behind_all_jobs(check[name]) for name in ("cpu_job", "gate_job", "nccl_job")},
        "more_collectives": (),
        "ranks_per_node": ranks,
        "prepare_options": [*check["prepare_options"], NICE],
        # Preparation, the measurement, and its repetition if the runs differ.
        "measurement_seconds": 3 * (START_SECONDS + check["run_seconds"]),
    }


def _behind_all_jobs(job: str) -> str:
    first, rest = job.split("\n", 1)
    return f"{first}\n#SBATCH {NICE}\n{rest}"
