"""Which transport should carry the data, by what the nodes have, and what to look at where another one did.

The variables named are NCCL's (docs.nvidia.com, NCCL user guide, "Environment Variables").
"""

from collections.abc import Mapping
from dataclasses import dataclass

from components.validation.fabric_facts import EFA, INFINIBAND, ROCE, FabricFacts
from components.validation.transport import Transport

# What a site may say of RDMA (components/roles/fabric/settings.py), besides names of devices.
ANY_RDMA, ONLY_SOCKETS = "auto", "tailnet"
# Ports of Ethernet that are up and carried nothing when their nodes joined: an ordinary network card of a cloud.
ROCE_UNPROVEN = "infiniband"
NVLINK, PCIE, SOCKETS = "NVLink", "P2P over PCIe", "sockets"
_GPUDIRECT = " + GPUDirect RDMA"
# Names that NCCL's network plugins for verbs give themselves, where the log does not say which fabric it is.
_VERBS = ("IB verbs", "IBext", "UCX")
_LOOK = {
    INFINIBAND: (
        "NCCL_IB_DISABLE, NCCL_IB_HCA and NCCL_NET in the job's environment and /etc/nccl.conf, libibverbs and its "
        "drivers (rdma-core) where the program runs, and the limit of locked memory (ulimit -l)"
    ),
    EFA: "NCCL_NET and NCCL_NET_PLUGIN, FI_PROVIDER, and aws-ofi-nccl's libnccl-net.so on LD_LIBRARY_PATH",
    NVLINK: (
        "NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, 'nvidia-smi nvlink --status', nvidia-fabricmanager, and whether all "
        "ranks of a node see all its GPUs (--gpu-bind=none)"
    ),
    PCIE: "NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, ACS ('lspci -vvv | grep ACSCtl') and the IOMMU",
    SOCKETS: "NCCL_NET and the network plugin that was loaded",
}
_LOOK[ROCE] = _LOOK[INFINIBAND] + ", and NCCL_IB_GID_INDEX"
_LOOK_AT_GPUDIRECT = (
    "NCCL_NET_GDR_LEVEL, NCCL_NET_GDR_READ and NCCL_DMABUF_ENABLE, 'nvidia-smi topo -m', and ACS or ATS on the way"
)


@dataclass(frozen=True)
class Expected:
    """What should carry the data; None where the nodes do not say. `where` names what is there for it.

    gpudirect   whether network devices should read the GPUs' memory by themselves
    denied      nodes whose driver does not let them
    """

    transport: str | None = None
    interface: str | None = None
    where: str = ""
    gpudirect: bool = False
    denied: tuple[str, ...] = ()


NOTHING = Expected()


def expect(
    nodes: tuple[str, ...],
    there: Mapping[str, FabricFacts],
    interface: str | None,
    *,
    spans: bool,
    rdma: str = ANY_RDMA,
) -> Expected:
    """What should carry the data between the GPUs of some nodes.

    interface   the one that sockets should use
    spans       whether the nodes stand in more than one site: then nothing but sockets joins them
    rdma        what jobs may use of it: ANY_RDMA; names of InfiniBand's and RoCE's ports with commas between; `none`;
                ONLY_SOCKETS; or ROCE_UNPROVEN: nobody knows what RoCE's ports are worth
    """
    if spans:
        return Expected(SOCKETS, interface, f"{interface} alone joins the sites")
    if any(node not in there for node in nodes):
        return NOTHING
    own = [there[node] for node in nodes]
    close = all(node.near for node in own)
    denied = tuple(node for node in nodes if not there[node].direct)
    if len(own) == 1:
        (node,) = own
        if node.nvlink:
            return Expected(NVLINK, None, f"NVLink joins the GPUs of {nodes[0]}")
        return Expected(PCIE, None, f"the GPUs of {nodes[0]} can read one another") if node.p2p else NOTHING
    if rdma == ONLY_SOCKETS:
        return Expected(SOCKETS, interface, "the config of the site wants the tailnet")
    for fabric in (INFINIBAND, EFA, ROCE):
        ports = [
            sorted(port for port, kind in node.ports.items() if kind == fabric and _may(port, kind, rdma))
            for node in own
        ]
        if all(ports) and fabric == ROCE and rdma == ROCE_UNPROVEN:
            return NOTHING
        if all(ports):
            where = "; ".join(f"{node} {', '.join(names)}" for node, names in zip(nodes, ports, strict=True))
            # EFA's own module reaches GPUs' memory without another's.
            return Expected(fabric, None, f"{fabric} is up ({where})", close, () if fabric == EFA else denied)
    return Expected(SOCKETS, interface, "no RDMA port that jobs may use is up on all of the nodes")


def _may(port: str, fabric: str, rdma: str) -> bool:
    """Whether jobs may use a port (`mlx5_0:1`); a plugin's, such as EFA's, is nothing that `rdma` speaks of."""
    return (
        fabric == EFA or rdma in (ANY_RDMA, ROCE_UNPROVEN) or bool({port, port.partition(":")[0]} & {*rdma.split(",")})
    )


def complaint(expected: Expected, used: Transport) -> str | None:
    """What is wrong with the transport that was used, and what to look at; None where nothing is known to be."""
    if expected.transport is None or used.name is None:
        return None
    names = {name.removesuffix(_GPUDIRECT) for name in used.name.split(", ")}
    # Sockets are the last resort of every fabric, shared memory and PCIe that of NVLink; a network plugin that is
    # not known by name may well be the fabric's own.
    worse = {name for name in names if not _fits(expected.transport, name)}
    if worse:
        over = f" over {used.interface}" if used.interface else ""
        return (
            f"{' and '.join(sorted(worse))}{over} carried the data where {expected.transport} should have: "
            f"{expected.where}. Look at {_LOOK[expected.transport]}."
        )
    if expected.transport == SOCKETS and expected.interface and used.interface != expected.interface:
        return (
            f"The data went over {used.interface or 'an interface that the log does not name'} where "
            f"{expected.interface} should have carried it. Look at NCCL_SOCKET_IFNAME."
        )
    if expected.gpudirect and any(_GPUDIRECT not in name for name in used.name.split(", ")):
        if expected.denied:
            return (
                f"GPUDirect RDMA was not used: {', '.join(expected.denied)} has neither nvidia_peermem nor DMA-BUF. "
                "Load nvidia_peermem ('modprobe nvidia_peermem', and a line of that name in /etc/modules-load.d), or "
                "install NVIDIA's open kernel module."
            )
        return (
            f"GPUDirect RDMA was not used, though the driver lets it and a GPU is near its network device "
            f"({expected.where}). Look at {_LOOK_AT_GPUDIRECT}."
        )
    return None


def _fits(expected: str, name: str) -> bool:
    if expected == SOCKETS:
        return name == SOCKETS
    if expected in (NVLINK, PCIE):
        # P2P without a path is not proven to be the slower one.
        return name in (expected, "P2P", NVLINK)
    return name == NVLINK or (name == expected or name.startswith(_VERBS) or name not in (SOCKETS, INFINIBAND, ROCE))


def proven(expected: Expected, used: Transport) -> bool:
    """Whether the log says enough to be compared with what is there."""
    if expected.transport is None:
        return True
    if used.name is None:
        return False
    return "P2P" not in used.name.split(", ") or expected.transport not in (NVLINK, PCIE)
