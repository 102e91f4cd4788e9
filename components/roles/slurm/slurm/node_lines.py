"""One node's part of Slurm's configuration: features, gres, and its lines in the controller's files. Pure.

Placeholders of an elastic pool: nodes that slurmctld has before their machines exist. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from components.roles.slurm.slurm.folders import POD, POD_JOBS
from components.roles.slurm.slurm.settings import Elastic
from components.settings.types import GPUS_FOUND

if TYPE_CHECKING:
    from components.host import Host

# Memory reserved for the system, tailscaled and slurmd: a share, between two amounts in MB.
_RESERVED_SHARE = 16
_RESERVED_MB = (256, 8192)
# A node registers with less memory than it has, by a share and at most some MB, because another kernel may leave it a
# bit less, and slurmctld drains a node that has less than it registered. (node_reg_mem_percent does not prevent that
# before 25.05: node_mgr.c does not clear errno before it parses the number, and a stale errno makes it 100 %.)
_MARGIN_SHARE, _MARGIN_MB = 64, 1024
# The default per CPU is rounded to this step, so that similar machines, which differ by a few MB, have the same one.
_STEP_MB = 64
# Seconds that a node stays POWERING_DOWN by itself; the most that slurmctld takes. Slurm gives it no job meanwhile, and
# `make elastic` ends the state once the machine is gone. A short time would let a job start on a machine that leaves.
_LEAVING_SECONDS = 65000


@dataclass(frozen=True)
class NodeGpus:
    """A node's GPUs that jobs may use.

    kind      Slurm's gres type, such as h200; empty without GPUs
    devices   numbers of their device files: 1 is /dev/nvidia1
    named     whether the config names the kind, so that it has a partition
    """

    kind: str = ""
    devices: tuple[int, ...] = ()
    named: bool = True

    @classmethod
    def promised(cls, host: Host) -> NodeGpus:
        """Return the GPUs that the config promises for a node that is not checked yet."""
        return cls(host.gpu.kind, tuple(range(host.gpu.count))) if host.gpu else cls()

    @classmethod
    def found(cls, host: Host, facts: Mapping[str, Any]) -> NodeGpus:
        """Return the GPUs that the node's check reported; none if it reported none or malformed values."""
        kind, devices = facts.get("gpu_kind"), facts.get("gpu_devices")
        return cls(kind, tuple(devices), host.gpu is not None) if kind and devices else cls()

    def problem(self, host: Host) -> str:
        """Return how these differ from the GPUs that the config promises; empty if they match."""
        promise = NodeGpus.promised(host)
        if not promise.devices or (promise.kind, len(promise.devices)) == (self.kind, len(self.devices)):
            return ""
        return f"it shows {str(self) or 'no GPU'} and the config promises {promise}"

    @property
    def files(self) -> str:
        """The device files in gres.conf's notation: /dev/nvidia[0-2,5]."""
        # Within a run of consecutive numbers, number minus index is constant.
        runs = [
            [number for _, number in run] for _, run in groupby(enumerate(self.devices), lambda pair: pair[1] - pair[0])
        ]
        text = ",".join(_run(run) for run in runs)
        return f"/dev/nvidia{text}" if len(self.devices) == 1 else f"/dev/nvidia[{text}]"

    def __str__(self) -> str:
        """Return `h200:8`; empty without GPUs."""
        return f"{self.kind}:{len(self.devices)}" if self.devices else ""


def _run(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def site_node_set(site: str) -> str:
    """Return the NodeSet and feature of a site. The site's plain name is its partition's."""
    return f"site-{site}"


def gpu_node_set(kind: str) -> str:
    """Return the NodeSet and feature of a GPU kind."""
    return f"gpu-{kind}"


def node_set_lines(node_set: str, partition: str) -> list[str]:
    """Return lines of slurm.conf: a NodeSet of all nodes with the feature of that name, and its partition."""
    return [
        f"NodeSet={node_set} Feature={node_set}",
        f"PartitionName={partition} Nodes={node_set} MaxTime=INFINITE State=UP",
    ]


def outside_all(node_set: str) -> str:
    """Return a comment of slurm.conf: partition `all` does not have the nodes of a site's NodeSet (controller.py)."""
    return f"# Not in partition all: {node_set}"


def of_pods(node_set: str, *, network: bool) -> str:
    """Return a comment of slurm.conf: the nodes of a site's NodeSet are pods, perhaps with a shared network.

    controller.py reads it.
    """
    return f"# Pods{' in one network' if network else ''}: {node_set}"


def _node_sets(host: Host, gpus: NodeGpus) -> list[tuple[str, str]]:
    """Return the NodeSets of a node, each with its partition. A pod is only in its site's.

    A kind that only the machine reports has no partition of that name: it could be the name of a site, and the check of
    the config could not see that.
    """
    sets = [(site_node_set(host.site), host.site)]
    if gpus.devices and not host.pod:
        sets.append((gpu_node_set(gpus.kind), gpus.kind) if gpus.named else (gpu_node_set("found"), GPUS_FOUND))
    return sets


def memory_values(host: Host, cpus: int, memory_mb: int, gpus: NodeGpus | None = None) -> dict[str, Any]:
    """Return header values by name, from the facts of the node's check: the memory that jobs may use, and defaults.

    node_registered_mb   memory that the node registers, a little less than it has
    node_reserved_mb   memory that jobs never get
    node_memory   a line for each NodeSet of the node, `site-rack 4096`: MB per CPU for a job that asks for no memory.
                  `ALL` is the partition of all nodes.
    node_gpu_cpus   such lines with the CPUs per GPU for a job that asks for none; empty without GPUs
    """
    reserved = min(max(memory_mb // _RESERVED_SHARE, _RESERVED_MB[0]), _RESERVED_MB[1])
    registered = memory_mb - min(memory_mb // _MARGIN_SHARE, _MARGIN_MB)
    registered = registered // _STEP_MB * _STEP_MB or registered
    share = max((registered - reserved) // cpus, 1)
    share = share // _STEP_MB * _STEP_MB or share
    gpus = gpus or NodeGpus.promised(host)
    node_sets = ["ALL", *(name for name, _ in _node_sets(host, gpus))]
    gpu_cpus = _cpus_per_gpu(cpus, len(gpus.devices))
    return {
        "node_registered_mb": registered,
        "node_reserved_mb": reserved,
        "node_memory": "\n".join(f"{node_set} {share}" for node_set in node_sets),
        "node_gpu_cpus": "\n".join(f"{node_set} {gpu_cpus}" for node_set in node_sets) if gpus.devices else "",
    }


def _cpus_per_gpu(cpus: int, gpus: int) -> int:
    """Return a GPU's share of the CPUs; 0 without GPUs, or if there are fewer CPUs than GPUs.

    Slurm gives a job whole cores, mostly of two CPUs. With an odd share, jobs of one GPU each would run out of cores
    before GPUs.
    """
    share = cpus // gpus if gpus else 0
    return share - share % 2 if share > 1 else share


def node_values(host: Host, gpus: NodeGpus | None = None) -> dict[str, Any]:
    """Return header values by name: those that the node registers with, and those that the head node keeps.

    gpus   GPUs that the node's check reported; default: the config's

    node_features    `site-rack,gpu-h200` and the user's features
    node_gres        `gpu:h200:8`, empty without GPUs
    node_gpu_kind, node_gpu_count   `h200` and 8; empty and 0 without GPUs
    node_site        its switch in the topology
    node_slurm_conf  lines of slurm.conf: the partitions of its site and of its GPUs, and whether `all` lacks its site
    node_gres_conf   a line with the device files and with Type, without which a node would register no GPU
    node_job_submit_lua  lines for the submit script: its resources, and whether `all` lacks its site
    """
    gpus = gpus or NodeGpus.promised(host)
    sets = _node_sets(host, gpus)
    kind, count = gpus.kind, len(gpus.devices)
    features = [name for name, _ in sets]
    if gpus.devices and not gpus.named and not host.pod:
        features.append(gpu_node_set(kind))
    if host.pod:
        features.append(POD)
    slurm_lines = [line for pair in sets for line in node_set_lines(*pair)]
    lua_lines = [f'member("{host.name}", "{host.site}", "{kind}", {count})']
    if not host.in_all:
        slurm_lines.append(outside_all(site_node_set(host.site)))
        lua_lines.append(f'outside_all("{host.site}")')
    if host.pod:
        slurm_lines.append(of_pods(site_node_set(host.site), network=host.has_pod_network))
        # The file is there once a pod has registered.
        site = f'"{host.site}"'
        if host.stage or host.has_pod_network:
            site += ", true" if host.stage else ", false"
        if host.has_pod_network:
            site += ", true"
        lua_lines.append(f'if not pods then pcall(dofile, "{POD_JOBS}") end if pods then pods({site}) end')
    # Without `Type`, a node that registers one is drained.
    gres_line = f"NodeName={host.name} Name=gpu Type={kind} File={gpus.files}" if gpus.devices else ""
    return {
        "node_features": ",".join([*features, *host.features]),
        "node_gres": f"gpu:{gpus}" if gpus.devices else "",
        "node_gpu_kind": kind,
        "node_gpu_count": count,
        "node_site": host.site,
        "node_slurm_conf": "\n".join(slurm_lines),
        "node_gres_conf": gres_line,
        "node_job_submit_lua": "\n".join(lua_lines),
    }


def promised(host: Host, elastic: Elastic) -> Host:
    """Return the host with the CPUs and memory that the config promises for it."""
    return replace(host, promised_cpus=elastic.cpus, promised_mb=int(elastic.memory_gb * 1024))


def placeholder_row(host: Host, elastic: Elastic) -> list[str]:
    """Return a row for the head node (nodes.py, Placeholder)."""
    host = promised(host, elastic)
    values, memory = node_values(host), memory_values(host, host.promised_cpus, host.promised_mb)
    words = [
        f"NodeName={host.name}",
        "State=CLOUD",
        f"CPUs={host.promised_cpus}",
        "Sockets=1",
        f"CoresPerSocket={host.promised_cpus // elastic.threads_per_core}",
        f"ThreadsPerCore={elastic.threads_per_core}",
        f"RealMemory={memory['node_registered_mb']}",
        f"MemSpecLimit={memory['node_reserved_mb']}",
        f"Feature={values['node_features']}",
        *([f"Gres={values['node_gres']}"] if values["node_gres"] else []),
    ]
    site_lines = set(node_set_lines(site_node_set(host.site), host.site))
    lines = [line for line in values["node_slurm_conf"].split("\n") if line not in site_lines]
    return [
        host.name,
        host.site,
        "\n".join([" ".join(words), *lines]),
        values["node_job_submit_lua"],
        memory["node_memory"],
        memory["node_gpu_cpus"],
    ]


def elastic_site_lines(site: str, elastic: Elastic) -> Sequence[str]:
    """Return the lines of a site whose machines jobs bring: its NodeSet, and its partition with Slurm's time limits.

    slurmctld marks a node that is not up after ResumeTimeout as down, and requeues its jobs.
    """
    node_set, partition = node_set_lines(site_node_set(site), site)
    times = (
        f"SuspendTime={elastic.idle_minutes * 60} ResumeTimeout={elastic.boot_minutes * 60} "
        f"SuspendTimeout={_LEAVING_SECONDS}"
    )
    return [node_set, f"{partition} {times}"]
