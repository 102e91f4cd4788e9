"""slurm.conf and its kin, for a configless cluster of dynamic nodes that speaks over the tailnet only.

Settings and their reasons are in templates/slurm.conf.j2; sources: `man slurm.conf`, and measurements noted in
docs/decisions/0003-slurm-over-a-tailnet.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from components.config_files.hostlist import fold
from components.config_files.render import render

# Slurm keeps this many node records ready; the tree of its messages is as wide, because a dynamic node may be behind
# a relay and should not forward for others.
MAX_NODE_COUNT = 1024


@dataclass(frozen=True)
class NodeEntry:
    """What the controller's files say of a node: its name, its site, and its GPUs (kind, count) or None."""

    name: str
    site: str
    gpu: tuple[str, int] | None = None


@dataclass(frozen=True)
class PartitionEntry:
    """A partition beyond the default one: its name, the NodeSets in it, and Slurm's MaxTime (`1-00:00:00`)."""

    name: str
    node_sets: tuple[str, ...]
    max_time: str = "INFINITE"


@dataclass(frozen=True)
class SlurmModel:
    """All that the controller's files depend on.

    settings   extra slurm.conf keys from the user, written last
    cgroups    whether jobs are confined by cgroups; false only where machines give systemd no controllers
    """

    cluster_name: str
    head_name: str
    head_address: str
    sites: tuple[str, ...]
    nodes: tuple[NodeEntry, ...]
    partitions: tuple[PartitionEntry, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    cgroups: bool = True

    @property
    def gpu_kinds(self) -> tuple[str, ...]:
        """GPU kinds in the cluster, sorted, each once."""
        return tuple(sorted({node.gpu[0] for node in self.nodes if node.gpu}))


def site_node_set(site: str) -> str:
    """NodeSet and feature of a site; not the site's own name, which is its partition's."""
    return f"site-{site}"


def gpu_node_set(kind: str) -> str:
    """NodeSet and feature of a GPU kind."""
    return f"gpu-{kind}"


def all_partitions(model: SlurmModel) -> tuple[PartitionEntry, ...]:
    """Partitions beyond `all`, in the order they are written: sites, GPU kinds, the user's own."""
    return (
        *(PartitionEntry(site, (site_node_set(site),)) for site in model.sites),
        *(PartitionEntry(kind, (gpu_node_set(kind),)) for kind in model.gpu_kinds),
        *model.partitions,
    )


def node_features(node: NodeEntry, extra: Sequence[str] = ()) -> tuple[str, ...]:
    """Features a node registers with: its site, its GPU kind, and what the user added."""
    kind = (gpu_node_set(node.gpu[0]),) if node.gpu else ()
    return (site_node_set(node.site), *kind, *extra)


def node_gres(node: NodeEntry) -> str:
    """Gres a node registers with (`gpu:h200:8`), empty without GPUs."""
    return f"gpu:{node.gpu[0]}:{node.gpu[1]}" if node.gpu else ""


def slurm_conf(model: SlurmModel) -> str:
    """Return slurm.conf. A key the user sets takes the place of ours: Slurm wants each key once."""
    own = {key.lower() for key in model.settings}
    text = render(
        "slurm.conf",
        model=model,
        partitions=all_partitions(model),
        node_sets=[*(site_node_set(s) for s in model.sites), *(gpu_node_set(k) for k in model.gpu_kinds)],
        max_node_count=MAX_NODE_COUNT,
    )
    lines = [line for line in text.splitlines() if line.partition("=")[0].lower() not in own]
    return "\n".join([*lines, *(f"{key}={value}" for key, value in sorted(model.settings.items()))])


def gres_conf(model: SlurmModel) -> str:
    """Return gres.conf: one line for each kind and count, with Type, or nodes would register no GPU at all."""
    groups: dict[tuple[str, int], list[str]] = {}
    for node in model.nodes:
        if node.gpu:
            groups.setdefault(node.gpu, []).append(node.name)
    lines = ["# Written by tailrack."]
    for (kind, count), names in sorted(groups.items()):
        files = "/dev/nvidia0" if count == 1 else f"/dev/nvidia[0-{count - 1}]"
        lines.append(f"NodeName={fold(names)} Name=gpu Type={kind} File={files}")
    return "\n".join(lines)


def topology_conf(model: SlurmModel) -> str:
    """Return topology.conf: a leaf switch a site, all of them under the tailnet.

    A job takes nodes of one switch unless it asks for more with --switches (templates/job_submit.lua.j2). Sites
    without a node are left out: Slurm refuses a switch that has none.
    """
    lines = ["# Written by tailrack. A site is a switch: fast inside, the tailnet between."]
    populated = []
    for site in model.sites:
        names = [node.name for node in model.nodes if node.site == site]
        if names:
            populated.append(site)
            lines.append(f"SwitchName={site} Nodes={fold(names)}")
    if populated:
        lines.append(f"SwitchName=tailnet Switches={','.join(populated)}")
    return "\n".join(lines)


def cgroup_conf(model: SlurmModel) -> str:
    """Return cgroup.conf."""
    return render("cgroup.conf", cgroups=model.cgroups)


def controller_files(model: SlurmModel) -> dict[str, str]:
    """Return all files of the controller by name, ready to be written to /etc/slurm."""
    return {
        "slurm.conf": slurm_conf(model),
        "gres.conf": gres_conf(model),
        "topology.conf": topology_conf(model),
        "cgroup.conf": cgroup_conf(model),
        "mpi.conf": render("mpi.conf"),
        "job_submit.lua": render("job_submit.lua"),
    }
