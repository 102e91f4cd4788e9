"""What one node adds to Slurm: its features and gres, and its lines in the controller's files. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from components.host import Host

# What a node keeps for the system, tailscaled and slurmd: a share of its memory, between two amounts of MB.
_RESERVED_SHARE = 16
_RESERVED_MB = (256, 8192)
# The default a CPU is in steps, so that machines of one kind, which differ by a few MB, have the same.
_STEP_MB = 64


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


def _node_sets(host: Host) -> list[tuple[str, str]]:
    """NodeSets that a node is in, each with the partition that it makes."""
    site = (site_node_set(host.site), host.site)
    return [site, (gpu_node_set(host.gpu.kind), host.gpu.kind)] if host.gpu else [site]


def memory_values(host: Host, cpus: int, memory_mb: int) -> dict[str, str | int]:
    """Header values by field: what jobs may have of a node's memory, from what its gate found.

    reserved_mb   never given to a job
    memory        a line for each NodeSet that the node is in, `site-rack 4096`: MB that a job gets a CPU if it asks for
                  none. `ALL` is the partition of all nodes.
    """
    reserved = min(max(memory_mb // _RESERVED_SHARE, _RESERVED_MB[0]), _RESERVED_MB[1])
    share = max((memory_mb - reserved) // cpus, 1)
    share = share // _STEP_MB * _STEP_MB or share
    return {
        "reserved_mb": reserved,
        "memory": "\n".join(f"{node_set} {share}" for node_set in ("ALL", *(name for name, _ in _node_sets(host)))),
    }


def node_values(host: Host) -> dict[str, str | int]:
    """Header values by field: what a node registers with, and what the head node keeps of it.

    features    `site-rack,gpu-h200` and the user's own
    gres        `gpu:h200:8`, empty without GPUs
    site        the switch that it hangs at
    slurm_conf  lines of slurm.conf: the partitions of its site and of its GPU kind
    gres_conf   a line with Type, without which a node would register no GPU at all
    job_submit_lua  a line that tells the submit script what the node has
    """
    sets = _node_sets(host)
    kind, count = (host.gpu.kind, host.gpu.count) if host.gpu else ("", 0)
    gres, files = "", ""
    if host.gpu:
        gres = f"gpu:{kind}:{count}"
        devices = "/dev/nvidia0" if count == 1 else f"/dev/nvidia[0-{count - 1}]"
        files = f"NodeName={host.name} Name=gpu Type={kind} File={devices}"
    return {
        "features": ",".join([*(node_set for node_set, _ in sets), *host.features]),
        "gres": gres,
        "gpu_kind": kind,
        "gpu_count": count,
        "site": host.site,
        "slurm_conf": "\n".join(line for pair in sets for line in node_set_lines(*pair)),
        "gres_conf": files,
        "job_submit_lua": f'member("{host.name}", "{host.site}", "{kind}", {count})',
    }
