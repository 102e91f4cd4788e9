"""The transport that carried a job's data, the one that should have, and remedies if they differ.

The first is read from the job's output; a value that the output does not prove is None. NCCL logs it with
NCCL_DEBUG=INFO: one line per channel (`via P2P/CUMEM`, `via NET/IB/0/GDRDMA`) and one per host with the devices behind
the numbers (`NET/IB : Using [0]mlx5_0:1/RoCE`); source: NCCL's src/transport/. With
NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH it adds `Pattern 4 ... type NVL/PIX`, the only proof inside a node that P2P is
NVLink and not PCIe. The program for CPUs prints `# tailrack transport:` and `# tailrack traffic:` lines
(all_reduce_perf_cpu.py). The variables are from NCCL's user guide, "Environment Variables".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from components.validation.fabric_facts import EFA, INFINIBAND, ROCE, FabricFacts
from components.validation.nccl_tests import LogLine, separate

# Names of aws-ofi-nccl; since release 1.13 the last one, unless NCCL_NET sets another.
_LIBFABRIC = ("AWS Libfabric", "OFI", "Libfabric")
_NET = re.compile(
    r" via (?P<kind>NET|COLLNET)/(?P<plugin>[^/]+)/(?P<device>\d+)(?:\(\d+\))?"
    r"(?P<rdma>/GDRDMA)?(?:\(PCI\))?(?:/Shared)?\s*$"
)
_P2P = re.compile(r" via P2P/(?P<how>\w+)")
_SHM = re.compile(r" via (?:SHM/|direct shared memory)")
_USING = re.compile(r"NET/(?P<plugin>IB|Socket) : Using (?P<devices>\[.*)")
_DEVICE = re.compile(r"\[(?P<number>\d+)\](?P<name>[^\s:\[\]]+):(?P<rest>\S*)")
_RING = re.compile(r"^Pattern 4, .* type (?P<intra>[A-Z0-9]+)/")
_INTERFACE = re.compile(r"# tailrack transport: tcp interface (?P<interface>\S+) [0-9.]+ rank \d+ on \S+", re.ASCII)
_TRAFFIC = re.compile(
    r"# tailrack traffic: (?P<interface>\S+) sent (?P<sent>\d{1,30}) of (?P<least>\d{1,30}) rank \d+ on \S+", re.ASCII
)


@dataclass(frozen=True)
class Transport:
    """The transport, and its network devices joined by `,`.

    `name` is NVLink, P2P, P2P over PCIe, SHM, InfiniBand, RoCE, IB verbs, sockets, TCP or a network plugin's own name,
    with ` + GPUDirect RDMA` if used; several are joined by `, `.
    """

    name: str | None
    interface: str | None


def read_transport(output: str, nodes: int) -> Transport:
    """Return the transport between nodes if `nodes` is above 1, else the one inside the node."""
    text, log = separate(output)
    lines = [line.rstrip() for line in text.split("\n")[:-1] if line.startswith("# tailrack t")]
    if lines:
        return _cpu_transport(lines, nodes)
    network = _network(log)
    if network:
        return network
    across_nodes = any((match := _P2P.search(line.message)) and match["how"] == "MNNVL" for line in log)
    return _inside_node(log) if nodes == 1 or across_nodes else Transport(None, None)


def _network(log: tuple[LogLine, ...]) -> Transport | None:
    # Each device's name, and whether it is RoCE, by number, of each host and plugin.
    devices: dict[tuple[str, str], dict[int, tuple[str, bool]]] = {}
    names: set[str] = set()
    interfaces: set[str] = set()
    unnamed = False
    for line in log:
        if using := _USING.search(line.message):
            of_host = devices.setdefault((line.host, using["plugin"]), {})
            for device in _DEVICE.finditer(using["devices"]):
                of_host[int(device["number"])] = (device["name"], "/RoCE" in device["rest"])
    for line in log:
        if used := _NET.search(line.message):
            of_host = devices.get((line.host, used["plugin"]), {})
            device_used = of_host.get(int(used["device"]))
            # NCCL gives merged ports a new number; the fabric is known only if the host has a single kind.
            links = {roce for _, roce in of_host.values()}
            roce = device_used[1] if device_used else links.pop() if len(links) == 1 else None
            name = _network_name(used["kind"], used["plugin"], roce)
            names.add(name + (GPUDIRECT if used["rdma"] else ""))
            interfaces.update([device_used[0]] if device_used else [])
            unnamed = unnamed or device_used is None
    if not names:
        return None
    return Transport(", ".join(sorted(names)), ",".join(sorted(interfaces)) if interfaces and not unnamed else None)


def _network_name(kind: str, plugin: str, roce: bool | None) -> str:
    if kind == "COLLNET":
        return f"COLLNET {plugin}"
    if plugin == "Socket":
        return "sockets"
    if plugin in _LIBFABRIC:
        return EFA
    if plugin != "IB":
        return plugin
    # NCCL calls its verbs transport IB on both fabrics; only its list of devices differs.
    return "IB verbs" if roce is None else "RoCE" if roce else "InfiniBand"


def _inside_node(log: tuple[LogLine, ...]) -> Transport:
    names: set[str] = set()
    paths = {match["intra"] for line in log if (match := _RING.search(line.message))}
    for line in log:
        if match := _P2P.search(line.message):
            names.add("NVLink" if match["how"] == "MNNVL" else _peer_name(paths))
        elif _SHM.search(line.message):
            names.add("SHM")
    return Transport(", ".join(sorted(names)) or None, None)


def _peer_name(paths: set[str]) -> str:
    if not paths:
        return "P2P"
    if paths <= {"NVL", "NVB"}:
        return "NVLink"
    return "P2P over PCIe" if not paths & {"NVL", "NVB"} else "P2P"


def _cpu_transport(lines: list[str], nodes: int) -> Transport:
    interfaces = [_INTERFACE.fullmatch(line) for line in lines if line.startswith("# tailrack transport")]
    traffic = [_TRAFFIC.fullmatch(line) for line in lines if line.startswith("# tailrack traffic")]
    if not interfaces or not all(interfaces):
        return Transport(None, None)  # at least one rank does not know it
    carried = all(match and int(match["sent"]) >= int(match["least"]) for match in traffic)
    if nodes > 1 and not (traffic and carried):
        return Transport(None, None)  # the data did not use the intended interface
    return Transport("TCP", ",".join(sorted({match["interface"] for match in interfaces if match})))


# A site's RDMA setting (components/roles/network/fabric/settings.py), besides names of devices.
ANY_RDMA, ONLY_SOCKETS = "auto", "tailnet"
# Ethernet ports that are up but carried nothing when their nodes joined: ordinary network cards of a cloud.
ROCE_UNPROVEN = "infiniband"
NVLINK, PCIE, SOCKETS = "NVLink", "P2P over PCIe", "sockets"
GPUDIRECT = " + GPUDirect RDMA"
# Names of NCCL's network plugins for verbs, whose log does not show the fabric.
_VERBS = ("IB verbs", "IBext", "UCX")
_REMEDY = {
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
_REMEDY[ROCE] = _REMEDY[INFINIBAND] + ", and NCCL_IB_GID_INDEX"
_DIRECT_REMEDY = (
    "NCCL_NET_GDR_LEVEL, NCCL_NET_GDR_READ and NCCL_DMABUF_ENABLE, 'nvidia-smi topo -m', and ACS or ATS on the way"
)


@dataclass(frozen=True)
class Expected:
    """The transport that should carry the data, None if unknown; `where` is the hardware for it.

    gpudirect   whether network devices should read GPU memory directly
    denied      nodes whose driver does not allow it
    """

    transport: str | None = None
    interface: str | None = None
    where: str = ""
    gpudirect: bool = False
    denied: tuple[str, ...] = ()


NOTHING = Expected()


def expect(
    nodes: tuple[str, ...],
    facts: Mapping[str, FabricFacts],
    interface: str | None,
    *,
    spans: bool,
    rdma: str = ANY_RDMA,
) -> Expected:
    """Return the transport that should carry the data between the GPUs of some nodes.

    interface   interface that sockets should use
    spans       whether the nodes are in several sites, which only sockets connect
    rdma        RDMA that jobs may use: ANY_RDMA; names of InfiniBand's and RoCE's ports, separated by commas; `none`;
                ONLY_SOCKETS; or ROCE_UNPROVEN: it is unknown whether the RoCE ports work
    """
    if spans:
        return Expected(SOCKETS, interface, f"only {interface} connects the sites")
    if any(node not in facts for node in nodes):
        return NOTHING
    nodes_facts = [facts[node] for node in nodes]
    close = all(node.near for node in nodes_facts)
    denied = tuple(node for node in nodes if not facts[node].direct)
    if len(nodes_facts) == 1:
        (node,) = nodes_facts
        if node.nvlink:
            return Expected(NVLINK, None, f"NVLink connects the GPUs of {nodes[0]}")
        return Expected(PCIE, None, f"the GPUs of {nodes[0]} can access each other") if node.p2p else NOTHING
    if rdma == ONLY_SOCKETS:
        return Expected(SOCKETS, interface, "the site's config selects the tailnet")
    for fabric in (INFINIBAND, EFA, ROCE):
        ports = [
            sorted(port for port, kind in node.ports.items() if kind == fabric and _is_allowed(port, kind, rdma))
            for node in nodes_facts
        ]
        if all(ports) and fabric == ROCE and rdma == ROCE_UNPROVEN:
            return NOTHING
        if all(ports):
            where = "; ".join(f"{node} {', '.join(names)}" for node, names in zip(nodes, ports, strict=True))
            # EFA's module needs no other module to reach GPU memory.
            return Expected(fabric, None, f"{fabric} is up ({where})", close, () if fabric == EFA else denied)
    return Expected(SOCKETS, interface, "no RDMA port that jobs may use is up on all nodes")


def _is_allowed(port: str, fabric: str, rdma: str) -> bool:
    """Whether jobs may use a port (`mlx5_0:1`); `rdma` does not restrict a plugin's port, such as EFA's."""
    return (
        fabric == EFA or rdma in (ANY_RDMA, ROCE_UNPROVEN) or bool({port, port.partition(":")[0]} & {*rdma.split(",")})
    )


def complaint(expected: Expected, used: Transport) -> str | None:
    """Return the problem with the transport that was used, and a remedy; None without a problem."""
    if expected.transport is None or used.name is None:
        return None
    names = {name.removesuffix(GPUDIRECT) for name in used.name.split(", ")}
    # Sockets are the fallback of every fabric, shared memory and PCIe that of NVLink. An unknown network plugin may be
    # the fabric's own.
    worse = {name for name in names if not _fits(expected.transport, name)}
    if worse:
        over = f" over {used.interface}" if used.interface else ""
        return (
            f"{' and '.join(sorted(worse))}{over} carried the data instead of {expected.transport}: "
            f"{expected.where}. Check {_REMEDY[expected.transport]}."
        )
    if expected.transport == SOCKETS and expected.interface and used.interface != expected.interface:
        return (
            f"The data went over {used.interface or 'an interface that the log does not name'} instead of "
            f"{expected.interface}. Check NCCL_SOCKET_IFNAME."
        )
    if expected.gpudirect and any(GPUDIRECT not in name for name in used.name.split(", ")):
        if expected.denied:
            return (
                f"GPUDirect RDMA was not used: {', '.join(expected.denied)} has neither nvidia_peermem nor DMA-BUF. "
                "Load nvidia_peermem ('modprobe nvidia_peermem', and add it to /etc/modules-load.d), or install "
                "NVIDIA's open kernel module."
            )
        return (
            f"GPUDirect RDMA was not used, although the driver supports it and a GPU is near its network device "
            f"({expected.where}). Check {_DIRECT_REMEDY}."
        )
    return None


def _fits(expected: str, name: str) -> bool:
    if expected == SOCKETS:
        return name == SOCKETS
    if expected in (NVLINK, PCIE):
        # P2P without a path may be NVLink.
        return name in (expected, "P2P", NVLINK)
    return name == NVLINK or (name == expected or name.startswith(_VERBS) or name not in (SOCKETS, INFINIBAND, ROCE))


def proven(expected: Expected, used: Transport) -> bool:
    """Whether the log has enough detail for a comparison with the expected transport."""
    if expected.transport is None:
        return True
    if used.name is None:
        return False
    return "P2P" not in used.name.split(", ") or expected.transport not in (NVLINK, PCIE)
