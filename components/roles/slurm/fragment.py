"""What one node adds to Slurm: its features and gres, and its lines in the controller's files. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from components.host import Host


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


def node_values(host: Host) -> dict[str, str | int]:
    """Header values by field: what a node registers with, and what the head node keeps of it.

    features    `site-rack,gpu-h200` and the user's own
    gres        `gpu:h200:8`, empty without GPUs
    site        the switch that it hangs at
    slurm_conf  lines of slurm.conf: the partitions of its site and of its GPU kind
    gres_conf   a line with Type, without which a node would register no GPU at all
    """
    sets = [(site_node_set(host.site), host.site)]
    gres, files = "", ""
    if host.gpu:
        sets.append((gpu_node_set(host.gpu.kind), host.gpu.kind))
        gres = f"gpu:{host.gpu.kind}:{host.gpu.count}"
        devices = "/dev/nvidia0" if host.gpu.count == 1 else f"/dev/nvidia[0-{host.gpu.count - 1}]"
        files = f"NodeName={host.name} Name=gpu Type={host.gpu.kind} File={devices}"
    return {
        "features": ",".join([*(node_set for node_set, _ in sets), *host.features]),
        "gres": gres,
        "gpu_kind": host.gpu.kind if host.gpu else "",
        "gpu_count": host.gpu.count if host.gpu else 0,
        "site": host.site,
        "slurm_conf": "\n".join(line for pair in sets for line in node_set_lines(*pair)),
        "gres_conf": files,
    }
