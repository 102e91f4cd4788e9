"""Read from a job's output which transport carried the data. A value that the output does not prove is None.

NCCL logs it with NCCL_DEBUG=INFO: one line per channel (`via P2P/CUMEM`, `via NET/IB/0/GDRDMA`) and one per host with
the devices behind the numbers (`NET/IB : Using [0]mlx5_0:1/RoCE`); source: NCCL's src/transport/. With
NCCL_DEBUG_SUBSYS=INIT,ENV,NET,GRAPH it adds `Pattern 4 ... type NVL/PIX`, the only proof inside a node that P2P is
NVLink and not PCIe. The program for CPUs prints `# tailrack transport:` and `# tailrack traffic:` lines
(all_reduce_perf_cpu.py).
"""

import re
from dataclasses import dataclass

from components.validation.fabric_facts import EFA
from components.validation.nccl_output import LogLine, separate

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


@dataclass(frozen=True)
class _Device:
    name: str
    roce: bool


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
    devices: dict[tuple[str, str, int], _Device] = {}
    names: set[str] = set()
    interfaces: set[str] = set()
    unnamed = False
    for line in log:
        if using := _USING.search(line.message):
            for device in _DEVICE.finditer(using["devices"]):
                key = (line.host, using["plugin"], int(device["number"]))
                devices[key] = _Device(device["name"], "/RoCE" in device["rest"])
    for line in log:
        if used := _NET.search(line.message):
            device_used = devices.get((line.host, used["plugin"], int(used["device"])))
            # NCCL gives merged ports a new number; the fabric is known only if the host has a single kind.
            links = {
                device.roce
                for (host, plugin, _), device in devices.items()
                if host == line.host and plugin == used["plugin"]
            }
            roce = device_used.roce if device_used else links.pop() if len(links) == 1 else None
            name = _network_name(used["kind"], used["plugin"], roce)
            names.add(name + (" + GPUDirect RDMA" if used["rdma"] else ""))
            interfaces.update([device_used.name] if device_used else [])
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
