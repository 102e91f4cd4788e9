"""Check the ports of InfiniBand and RoCE adapters in sysfs, and direct access to GPU memory.

Ports that were up before must not be down now. node_checks.py stores earlier states, because a port that never had a
cable is not lost.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from components.node.waiting import within
from components.validation.preflight.findings import Finding, Health, finding
from components.validation.this_node import text_of

PORT, DIRECT, ROCE = "InfiniBand port", "GPUDirect RDMA", "RoCE"
ROCE_MTU = 9216
LEAST_ROCE_MTU = 9000
# Error counters, with the count that is normal for a port since it came up.
COUNTERS = {
    "symbol_error": 0, "link_downed": 0, "link_error_recovery": 0, "port_rcv_errors": 100, "port_xmit_discards": 1000,
    "local_link_integrity_errors": 0, "excessive_buffer_overrun_errors": 0,
}  # fmt: skip
_STATE = re.compile(r"\d{1,2}: ([A-Za-z_]{1,20})", re.ASCII)
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,2})?) Gb/sec", re.ASCII)
WINDOW_SECONDS = 3 * 3600
MOST_DOWNS = 3
FORGET = "if the port is unused on purpose, run 'tailrack-checks --forget-ports' on the node"


@dataclass(frozen=True)
class Port:
    """One port of an adapter.

    state, physical   such as ACTIVE and LinkUp; None if unknown
    rate              Gb/s
    link              its link layer, such as InfiniBand; Ethernet is RoCE
    driver            the adapter's driver, such as efa
    mtu               MTU of its network interface (RoCE), bytes
    bus, numa_node    PCI address and NUMA node of the adapter, None if unknown
    """

    device: str
    number: int
    state: str | None
    physical: str | None
    rate: float | None
    link: str
    interface: str | None = None
    mtu: int | None = None
    bus: str = ""
    numa_node: int | None = None
    driver: str = ""
    counters: Mapping[str, int] = field(default_factory=dict)

    @property
    def roce(self) -> bool:
        return self.link == "Ethernet"

    @property
    def active(self) -> bool:
        return self.state == "ACTIVE"

    def __str__(self) -> str:
        return f"{self.device}/{self.number}"


def whole_number(text: str) -> int | None:
    """Return a number of at most 18 digits, which may be negative; None for any other text."""
    return int(text) if re.fullmatch(r"-?\d{1,18}", text, re.ASCII) else None


def numa_node(device: Path) -> int | None:
    """Return the NUMA node of a PCI device; None if there is only one or it is unknown."""
    node = whole_number(text_of(device / "numa_node"))
    return node if node is not None and node >= 0 else None


def read_ports(root: Path = Path("/")) -> list[Port]:
    ports = []
    for folder in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        adapter = folder.parents[1]
        state, physical = (_STATE.fullmatch(text_of(folder / name)) for name in ("state", "phys_state"))
        rate = _RATE.match(text_of(folder / "rate"))
        interface = next((path.name for path in sorted((adapter / "device/net").glob("*"))), None)
        counters = {name: whole_number(text_of(folder / "counters" / name)) for name in COUNTERS}
        ports.append(
            Port(
                device=adapter.name,
                number=whole_number(folder.name) or 0,
                state=state[1] if state else None,
                physical=physical[1] if physical else None,
                rate=float(rate[1]) if rate else None,
                link=text_of(folder / "link_layer"),
                interface=interface,
                mtu=whole_number(text_of(root / f"sys/class/net/{interface}/mtu")) if interface else None,
                bus=(adapter / "device").resolve().name if (adapter / "device").exists() else "",
                numa_node=numa_node(adapter / "device"),
                driver=(adapter / "device/driver").resolve().name if (adapter / "device/driver").exists() else "",
                counters={name: count for name, count in counters.items() if count is not None},
            )
        )
    return ports


def manages_switches(adapter: Path) -> bool:
    """Return whether an adapter only manages a baseboard's NVLink switches (B200 and later): it carries no data.

    Only its vital product data shows it, which only root can read.
    """
    with suppress(OSError):
        return b"SW_MNG" in (adapter / "device/vpd").read_bytes()
    return False


def data_ports(health: Health | None, root: Path = Path("/")) -> list[Port]:
    """Return the ports that carry jobs' data: not those that manage a baseboard's NVLink switches."""
    managing = (health.output("management ports") if health else "").split()
    return [port for port in read_ports(root) if port.device not in managing]


def check_ports(ports: list[Port]) -> Iterator[Finding]:
    up = [port for port in ports if port.active]
    for port in ports:
        if port.active:
            yield from _check_counters(port)
        elif port.physical == "LinkUp":
            seen = f"{port} has a link but is {port.state or 'in an unknown state'}, not ACTIVE"
            yield finding("error", PORT, seen, "check the subnet manager ('sminfo', and opensm or the switch's own)")
        else:
            # Single unused ports are normal; without any port that is up, jobs do not use the network at all.
            severity = "info" if up else "warning"
            seen = f"{port} is {port.state or 'in an unknown state'} ({port.physical or 'no link'})"
            remedy = "check its cable and the switch port; ignore this if the port is unused on purpose"
            yield finding(severity, PORT, seen, remedy)
    rates = {port.rate for port in up if port.rate is not None}
    for port in up:
        if port.rate is not None and port.rate < max(rates):
            seen = f"{port} runs at {port.rate:g} Gb/s, another port of this node at {max(rates):g}"
            remedy = "check its cable and the switch port; if jobs must not use the port, leave it out of NCCL_IB_HCA"
            yield finding("warning", PORT, seen, remedy)


def _check_counters(port: Port) -> Iterator[Finding]:
    above = [f"{name} {count}" for name, count in port.counters.items() if count > COUNTERS[name]]
    if above:
        remedy = "check whether they still grow ('perfquery -x'); if so, clean or replace cable and transceiver"
        yield finding("warning", PORT, f"{port}: {', '.join(above)}", remedy)


def check_roce(
    ports: list[Port], ats: Mapping[str, bool], ats_on: Mapping[str, bool], virtual: bool
) -> Iterator[Finding]:
    """Check the MTU of RoCE ports and, on virtual machines, the address translation that GPUDirect RDMA needs.

    ats      by PCI address, whether ATS_ENABLED is set in the adapter's firmware (mlxconfig)
    ats_on   by PCI address, whether lspci's ATSCtl has Enable+
    """
    for port in ports:
        if not port.roce or not port.active:
            continue
        if port.mtu is not None and port.mtu < LEAST_ROCE_MTU:
            yield finding(
                "warning", ROCE, f"{port} ({port.interface}) has an MTU of {port.mtu}",
                f"'ip link set {port.interface} mtu {ROCE_MTU}', and the same MTU on the switch (fabric.roce.apply "
                "sets it on the node)",
            )  # fmt: skip
    buses = set()
    for port in ports:
        if not virtual or not port.active or port.bus in buses:
            continue
        buses.add(port.bus)
        if ats.get(port.bus) is False:
            seen = f"{port.device} ({port.bus}): this is a virtual machine, but ATS_ENABLED is off in its firmware"
            remedy = f"on the host: mlxconfig -d {port.bus} set ATS_ENABLED=true, then restart the host"
            yield finding("warning", ROCE, seen, remedy)
        elif ats_on.get(port.bus) is False:
            yield finding(
                "warning", ROCE,
                f"{port.device} ({port.bus}): this is a virtual machine, but lspci shows ATSCtl Enable-",
                "ask the provider to pass ATS through (IOMMU and ACS of the host); without it GPUDirect RDMA is slow",
            )  # fmt: skip


def read_mlxconfig(text: str) -> dict[str, bool]:
    """Return ATS_ENABLED by PCI address, from the collector's `# ADDRESS` lines and mlxconfig's tables."""
    enabled: dict[str, bool] = {}
    bus = ""
    for line in text.splitlines():
        if head := re.fullmatch(r"# ([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", line, re.ASCII):
            bus = head[1]
        elif bus and (value := re.fullmatch(r"\W*ATS_ENABLED\s+(True|False)\([01]\)\s*", line, re.ASCII)):
            enabled[bus] = value[1] == "True"
    return enabled


def check_direct(ports: list[Port], gpus: int, root: Path = Path("/")) -> Iterator[Finding]:
    """Check that adapters reach GPU memory, as NCCL does: nvidia_peermem, or DMA-BUF of the open kernel module."""
    if not gpus or not any(port.active for port in ports):
        return
    modules = ("sys/module/nvidia_peermem/version", "sys/kernel/mm/memory_peers/nv_mem/version")
    if "Open Kernel Module" in text_of(root / "proc/driver/nvidia/version"):
        yield finding("info", DIRECT, "by DMA-BUF of NVIDIA's open kernel module")
    elif any((root / module).exists() for module in modules):
        remedy = "jobs still run; install NVIDIA's open kernel module, which has DMA-BUF, with the next driver"
        yield finding("warning", DIRECT, "only by nvidia_peermem, which NVIDIA replaces by DMA-BUF", remedy)
    else:
        seen = "adapters cannot reach GPU memory: no nvidia_peermem and no open driver is loaded"
        remedy = "'modprobe nvidia_peermem' and add it to /etc/modules-load.d, or install NVIDIA's open kernel module"
        yield finding("warning", DIRECT, seen, remedy)


@dataclass(frozen=True)
class PortHistory:
    """Gb/s of each port that was ever ACTIVE, and (time, link_downed) of each port over the last hours."""

    rates: Mapping[str, float] = field(default_factory=dict)
    downs: Mapping[str, tuple[tuple[float, int], ...]] = field(default_factory=dict)


def updated_ports(history: PortHistory, ports: Sequence[Port], now: float) -> PortHistory:
    """Return the state to store: each port's best rate, and its counter at most every ten minutes."""
    rates, downs = dict(history.rates), {}
    for port in ports:
        if port.active:
            rates[str(port)] = max(port.rate or 0.0, rates.get(str(port), 0.0))
        samples = [sample for sample in history.downs.get(str(port), ()) if within(WINDOW_SECONDS, sample[0], now)]
        count = port.counters.get("link_downed")
        if count is not None and (not samples or not within(600, samples[-1][0], now) or count != samples[-1][1]):
            samples.append((now, count))
        downs[str(port)] = tuple(samples[-40:])
    return PortHistory(rates, downs)


def check_lost(ports: Sequence[Port], history: PortHistory, now: float) -> Iterator[Finding]:
    """Check for lost ports, slower ports, and links that went down often within three hours."""
    by_name = {str(port): port for port in ports}
    for name, rate in sorted(history.rates.items()):
        port = by_name.get(name)
        if port is None or not port.active:
            state = f"is {port.state or 'in an unknown state'} ({port.physical or 'no link'})" if port else "is gone"
            remedy = f"check its cable, transceiver and the switch port ('ibstat' on the node); {FORGET}"
            yield finding("error", PORT, f"{name} was ACTIVE and now {state}", remedy)
        elif port.rate is not None and port.rate < rate:
            seen = f"{name} ran at {rate:g} Gb/s and now runs at {port.rate:g} Gb/s"
            yield finding("error", PORT, seen, f"reseat or replace its cable and transceiver; {FORGET}")
    for name, samples in sorted(history.downs.items()):
        port = by_name.get(name)
        count = port.counters.get("link_downed") if port else None
        recent = [sample[1] for sample in samples if within(WINDOW_SECONDS, sample[0], now)]
        # A lower counter than before was reset by a person or by a restart.
        if count is not None and recent and count - min(recent) > MOST_DOWNS and count >= max(recent):
            seen = f"{name}: its link went down {count - min(recent)} times in three hours"
            remedy = "clean or replace cable and transceiver; see the switch's log for that port"
            yield finding("error", PORT, seen, remedy)
