"""What one node adds to Slurm: its features and gres, and its lines in the controller's files. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypedDict

from components.settings.types import GPUS_FOUND

if TYPE_CHECKING:
    from components.host import Host

# What a node keeps for the system, tailscaled and slurmd: a share of its memory, between two amounts of MB.
_RESERVED_SHARE = 16
_RESERVED_MB = (256, 8192)
# What a node registers with is less than it has, by a share and at most some MB: another kernel leaves it a bit
# less, and slurmctld drains a node that has less than it registered with. (Its node_reg_mem_percent does not hold:
# before it reads that number it does not clear errno, and takes 100 % where an earlier call has left one; node_mgr.c,
# mended in 25.05.)
_MARGIN_SHARE, _MARGIN_MB = 64, 1024
# The default a CPU is in steps, so that machines of one kind, which differ by a few MB, have the same.
_STEP_MB = 64


@dataclass(frozen=True)
class NodeGpus:
    """GPUs of a node that jobs may have.

    kind      Slurm's gres type, such as h200; empty without GPUs
    devices   numbers of their device files: 1 is /dev/nvidia1
    named     whether the config names the kind, so that it has a partition
    """

    kind: str = ""
    devices: tuple[int, ...] = ()
    named: bool = True

    @classmethod
    def promised(cls, host: Host) -> NodeGpus:
        """What the config says of a node that nobody has looked at yet."""
        return cls(host.gpu.kind, tuple(range(host.gpu.count))) if host.gpu else cls()

    @classmethod
    def found(cls, host: Host, facts: Mapping[str, Any]) -> NodeGpus:
        """What the node's gate found. What it did not say, or not as it should, is no GPU."""
        kind, devices = facts.get("gpu_kind"), facts.get("gpu_devices")
        return cls(kind, tuple(devices), host.gpu is not None) if kind and devices else cls()

    def problem(self, host: Host) -> str:
        """Why these cannot be the GPUs that the config promises; empty where they can."""
        promise = NodeGpus.promised(host)
        if not promise.devices or (promise.kind, len(promise.devices)) == (self.kind, len(self.devices)):
            return ""
        return f"it shows {str(self) or 'no GPU'} and the config promises {promise}"

    @property
    def files(self) -> str:
        """Their device files as gres.conf has them: /dev/nvidia[0-2,5]."""
        # What stays the same along a run of numbers is how far each is from its place.
        runs = [[number for _, number in run] for _, run in groupby(enumerate(self.devices), lambda at: at[1] - at[0])]
        text = ",".join(_run(run) for run in runs)
        return f"/dev/nvidia{text}" if len(self.devices) == 1 else f"/dev/nvidia[{text}]"

    def __str__(self) -> str:
        """`h200:8`, empty without GPUs."""
        return f"{self.kind}:{len(self.devices)}" if self.devices else ""


def _run(numbers: list[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{numbers[0]}-{numbers[-1]}"


def site_node_set(site: str) -> str:
    """NodeSet and feature of a site; not the site's own name, which is its partition's."""
    return f"site-{site}"


def gpu_node_set(kind: str) -> str:
    """NodeSet and feature of a GPU kind."""
    return f"gpu-{kind}"


def node_set_lines(node_set: str, partition: str) -> list[str]:
    """Lines of slurm.conf for a NodeSet (all nodes with the feature of that name) and the partition that it makes."""
    return [
        f"NodeSet={node_set} Feature={node_set}",
        f"PartitionName={partition} Nodes={node_set} MaxTime=INFINITE State=UP",
    ]


def _node_sets(host: Host, gpus: NodeGpus) -> list[tuple[str, str]]:
    """NodeSets that a node is in, each with the partition that it makes.

    A kind that only the machine names makes no partition: its name may be that of a site, which the config could not
    be checked for.
    """
    sets = [(site_node_set(host.site), host.site)]
    if gpus.devices:
        sets.append((gpu_node_set(gpus.kind), gpus.kind) if gpus.named else (gpu_node_set("found"), GPUS_FOUND))
    return sets


class MemoryValues(TypedDict):
    """What jobs may have of a node's memory.

    NODE_REGISTERED_MB   what Slurm is told that there is, a little less than that
    NODE_RESERVED_MB   never given to a job
    NODE_MEMORY   a line for each NodeSet that the node is in, `site-rack 4096`: MB that a job gets a CPU if it asks for
                  none. `ALL` is the partition of all nodes.
    """

    NODE_REGISTERED_MB: int
    NODE_RESERVED_MB: int
    NODE_MEMORY: str


def memory_values(host: Host, cpus: int, memory_mb: int, gpus: NodeGpus | None = None) -> MemoryValues:
    """Header values by name, from what the node's gate found."""
    reserved = min(max(memory_mb // _RESERVED_SHARE, _RESERVED_MB[0]), _RESERVED_MB[1])
    registered = memory_mb - min(memory_mb // _MARGIN_SHARE, _MARGIN_MB)
    registered = registered // _STEP_MB * _STEP_MB or registered
    share = max((registered - reserved) // cpus, 1)
    share = share // _STEP_MB * _STEP_MB or share
    return {
        "NODE_REGISTERED_MB": registered,
        "NODE_RESERVED_MB": reserved,
        "NODE_MEMORY": "\n".join(
            f"{node_set} {share}" for node_set in ("ALL", *_names(host, gpus or NodeGpus.promised(host)))
        ),
    }


def _names(host: Host, gpus: NodeGpus) -> Iterable[str]:
    return (name for name, _ in _node_sets(host, gpus))


class NodeValues(TypedDict):
    """What a node registers with, and what the head node keeps of it.

    NODE_FEATURES    `site-rack,gpu-h200` and the user's own
    NODE_GRES        `gpu:h200:8`, empty without GPUs
    NODE_GPU_KIND, NODE_GPU_COUNT   `h200` and 8; empty and 0 without GPUs
    NODE_SITE        the switch that it hangs at
    NODE_SLURM_CONF  lines of slurm.conf: the partitions of its site and of its GPUs
    NODE_GRES_CONF   a line with Type, without which a node would register no GPU at all, and the device files
    NODE_JOB_SUBMIT_LUA  a line that tells the submit script what the node has
    """

    NODE_FEATURES: str
    NODE_GRES: str
    NODE_GPU_KIND: str
    NODE_GPU_COUNT: int
    NODE_SITE: str
    NODE_SLURM_CONF: str
    NODE_GRES_CONF: str
    NODE_JOB_SUBMIT_LUA: str


def node_values(host: Host, found: NodeGpus | None = None) -> NodeValues:
    """Header values by name. `found`: its GPUs, once its gate has looked; what the config promises, before."""
    gpus = found or NodeGpus.promised(host)
    sets = _node_sets(host, gpus)
    kind, count = gpus.kind, len(gpus.devices)
    features = [name for name, _ in sets]
    if gpus.devices and not gpus.named:
        features.append(gpu_node_set(kind))
    files = f"NodeName={host.name} Name=gpu Type={kind} File={gpus.files}" if gpus.devices else ""
    return {
        "NODE_FEATURES": ",".join([*features, *host.features]),
        "NODE_GRES": f"gpu:{gpus}" if gpus.devices else "",
        "NODE_GPU_KIND": kind,
        "NODE_GPU_COUNT": count,
        "NODE_SITE": host.site,
        "NODE_SLURM_CONF": "\n".join(line for pair in sets for line in node_set_lines(*pair)),
        "NODE_GRES_CONF": files,
        "NODE_JOB_SUBMIT_LUA": f'member("{host.name}", "{host.site}", "{kind}", {count})',
    }
