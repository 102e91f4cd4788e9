"""What the program on the head node is told of a measurement: one JSON object, and the program itself.

The plan says everything but which nodes can take part; components/validation/measurement_run.py reads it. No pulumi.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from components.measurement.jobs import nccl_job, validation_job
from components.roles.python_program import python_program
from components.settings.validation import Validation
from components.steps import composition
from components.validation.groups import by_mpi_release, site_groups, spanning_group
from components.validation.model import Measurement
from components.validation.results import settings_json

FOLDER = Path(__file__).parent
VALIDATION = FOLDER.parent / "validation"
START_SECONDS = 60  # beyond the time that nodes are waited for: a job whose nodes are free starts with the next look
RUNS = 3  # of a measurement between GPUs at its gate size
# nccl-tests 2.19.6. What is fetched is held against the names and contents of the commit's files.
SOURCE = "https://github.com/NVIDIA/nccl-tests/archive/a0b82b2260cf5152b9f8c061bbf7eaf0ba096432.tar.gz"
SOURCE_SHA256 = "content:f04d111f74c9c5cb14454f2b223aaafd7edb23b9671a93f3a098314413db04a5"


@dataclass(frozen=True)
class Node:
    """A node of a scope.

    gpus   what was found on it, such as h200:8; empty where it has none
    mpi    what brings its ranks together, such as 5-pmix5 (groups.py); empty where that is not known
    """

    site: str
    address: str
    gpus: str
    mpi: str = ""


@cache
def script() -> composition.Script:
    """The step that measures a scope, with the programs that it starts."""
    files = {"all_reduce_perf.py": cpu_program()}
    texts = {"DRIVER": json.dumps(driver()), "JOB_FILES": json.dumps(files)}
    return composition.single(FOLDER / "validate.sh").with_texts(texts)


@cache
def driver() -> str:
    """The program that drives a measurement, for `exec` where `told` is what it is told."""
    return python_program("components.validation.measurement_run", "told", "components/validation/floors.csv")


@cache
def cpu_program() -> str:
    """The program that measures on CPUs."""
    return python_program("components.validation.all_reduce_perf_cpu", "")


@cache
def preflight_program() -> str:
    """The preflight, for python3 with one argument."""
    return python_program("components.validation.preflight.main", "sys.argv[1]")


@cache
def beside_program() -> str:
    """What a job says of others on its GPUs before and between its runs."""
    return python_program("components.validation.preflight.foreign", "")


def mpi_of(nodes: Mapping[str, Node], settings: Validation) -> dict[str, str]:
    """Releases of Open MPI and PMIx that bring ranks on GPUs together; none where a program or an image has its own."""
    own = settings.nccl.image or settings.nccl.program
    return {} if own else {name: node.mpi for name, node in nodes.items()}


def mpi_apart(nodes: Mapping[str, Node], settings: Validation, asked: Measurement) -> dict[str, tuple[str, ...]]:
    """Nodes by their releases of Open MPI and PMIx, where that changed what was measured; empty where it has not."""
    on_gpus = asked.backend == "nccl-tests"
    mpi = mpi_of(nodes, settings) if on_gpus else {name: node.mpi for name, node in nodes.items()}
    # Between sites CPUs are measured without MPI always.
    spans = len({node.site for node in nodes.values()}) > 1
    found = by_mpi_release(mpi, [name for name, node in nodes.items() if node.gpus or not on_gpus])
    return found if len(found) > 1 and (on_gpus or not spans) else {}


def cpu_measurement(asked: Measurement, nodes: Mapping[str, Node]) -> Measurement:
    """What is asked of the nodes' CPUs: without MPI where their releases of it do not speak with each other."""
    apart = len(by_mpi_release({name: node.mpi for name, node in nodes.items()}, nodes)) > 1
    return replace(asked, backend="tcp-cpu") if apart else asked


def gpu_measurement(nodes: Mapping[str, Node], settings: Validation) -> Measurement | None:
    """What is asked of the GPUs of a scope's largest group; None where there is none that could be measured."""
    gpus = {name: node.gpus for name, node in nodes.items()}
    sites = {name: node.site for name, node in nodes.items()}
    most = settings.nccl.gpus_per_node
    mpi = mpi_of(nodes, settings)
    groups, _ = spanning_group(gpus, sites, most, mpi) if len(set(sites.values())) > 1 else site_groups(gpus, most, mpi)
    if not groups:
        return None
    asked = settings.nccl
    return Measurement(
        backend="nccl-tests",
        min_bytes=asked.min_bytes,
        max_bytes=asked.max_bytes,
        factor=asked.factor,
        iterations=asked.iterations,
        warmup=asked.warmup,
        gate_bytes=asked.gate_bytes,
        collective=asked.collective,
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
    *,
    interface: str,
    expected_interface: str,
    fabric: Mapping[str, str],
    rdma: str,
    preflight: str,
) -> dict[str, Any]:
    """Return the plan of a scope's measurement.

    on_cpus     what is asked where there are no GPUs
    floors      the config's own for the scope, and for nodes by themselves; GB/s
    interface   the one that sockets are told to use; empty where jobs are told by default
    expected_interface   the one that they should have used
    rdma        what jobs may use of it (components/validation/expected.py)
    fabric      site to the interface of its own network, for the preflight
    preflight   the text of its program; empty for none
    """
    sites = {name: node.site for name, node in nodes.items()}
    spans = len(set(sites.values())) > 1
    on_cpus = cpu_measurement(on_cpus, nodes)
    on_gpus = gpu_measurement(nodes, settings)
    names = tuple(sorted(nodes))
    gate = Measurement(**{**settings_json(on_cpus), "min_bytes": on_cpus.gate_bytes, "max_bytes": on_cpus.gate_bytes})
    return {
        "scope": scope,
        "spans": spans,
        "sites": sites,
        "gpus": {name: node.gpus for name, node in nodes.items()},
        "about": {
            "nodes": {
                name: {"address": node.address, "site": node.site, "gpus": node.gpus} for name, node in nodes.items()
            },
            "fabric": dict(fabric),
        },
        "cpu": settings_json(on_cpus),
        "gate_job": validation_job(scope, names, gate, settings.time_limit_minutes, len(set(sites.values()))),
        "ranks_per_node": settings.ranks_per_node,
        "floor": floors[0],
        "node_floor": floors[1],
        "interface": interface,
        "expected_interface": expected_interface,
        "rdma": rdma,
        "preflight": preflight,
        "prepare_files": prepare_files(scope, settings, gpus=on_gpus is not None),
        "start_seconds": START_SECONDS,
        "run_seconds": run_seconds(settings),
        "measurement_seconds": measurement_seconds(settings),
        **_on_gpus(scope, settings, on_gpus, mpi_of(nodes, settings)),
    }


def run_seconds(settings: Validation) -> int:
    """How long a job may take from its start, and Slurm to end it at its limit."""
    return settings.time_limit_minutes * 60 + 60


def measurement_seconds(settings: Validation) -> int:
    """How long all jobs of a scope may take: preparing, nodes by themselves, groups, and the search."""
    return 4 * run_seconds(settings)


def _on_gpus(scope: str, settings: Validation, asked: Measurement | None, mpi: Mapping[str, str]) -> dict[str, Any]:
    if asked is None:
        return {"nccl": None}
    return gpu_part(settings, asked, nccl_job(scope, settings.nccl, settings.time_limit_minutes), mpi)


def gpu_part(settings: Validation, asked: Measurement, job: str, mpi: Mapping[str, str]) -> dict[str, Any]:
    """Return the part of a plan that is about GPUs. `job`: the text for sbatch."""
    told = settings_json(asked)
    del told["ranks"], told["nodes"]
    reader = (VALIDATION / "nccl_json.py").read_text(encoding="utf-8")
    files = {"rank.sh": _script("rank"), "nccl_json.py": reader, "foreign.py": beside_program()}
    files |= _program_files(settings)
    return {
        "nccl": {
            **told,
            "socket_max_bytes": settings.nccl.socket_max_bytes,
            "most_gpus": settings.nccl.gpus_per_node,
            "mpi": dict(mpi),
        },
        "nccl_job": job,
        "nccl_files": files,
    }


def prepare_files(scope: str, settings: Validation, *, gpus: bool) -> dict[str, str]:
    """Return the files of the job that comes before a measurement. `gpus`: whether it builds the program for them."""
    directives = f"#SBATCH --partition={settings.nccl.partition or 'all'}\n#SBATCH --time={settings.time_limit_minutes}"
    first, rest = _script("prepare").split("\n", 1)
    files = {
        "job.sh": "\n".join([first, f"#SBATCH --job-name=prepare-{scope}", directives, rest]),
        "collect_fabric_facts.py": (VALIDATION / "collect_fabric_facts.py").read_text(encoding="utf-8"),
    }
    return {**files, **_program_files(settings)} if gpus else files


def _program_files(settings: Validation) -> dict[str, str]:
    """What builds the program for the share; nothing where it is on the nodes or in an image."""
    asked = settings.nccl
    if asked.program or asked.image:
        return {}
    values = {
        "TAILRACK_SOURCE": asked.source or SOURCE,
        "TAILRACK_SHA256": asked.source_sha256 if asked.source else SOURCE_SHA256,
        "TAILRACK_COLLECTIVE": asked.collective,
    }
    told = "\n".join(f"{name}={shlex.quote(value)}" for name, value in values.items())
    shared = composition.Functions([], shared=("fetch",)).text
    return {"program.sh": f"{shared}\n{_script('program')}", "build.env": told}


def _script(name: str) -> str:
    return (FOLDER / f"{name}.sh").read_text(encoding="utf-8")
