"""The links of GPUs: NVLink (`nvidia-smi nvlink -s`), and ACS, ATS and NUMA nodes of GPUs, adapters and bridges.

ACS redirects traffic between two devices through the root complex. On bare metal it should be off; on a virtual machine
the host needs it, and the adapter needs ATS instead.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from components.validation.preflight.adapters import Port, numa_node
from components.validation.preflight.findings import CommandResult, Finding, finding, unjudged
from components.validation.this_node import text_of

NVLINK = "NVLink"
_GPU = re.compile(r"GPU (\d{1,3}): (.{0,100}?)(?: \(UUID.*)?", re.ASCII)
_LINK = re.compile(r"\s+Link (\d{1,3}): (?:(\d{1,4}(?:\.\d{1,6})?) GB/s|(\S.*))\s*", re.ASCII)
# Replaces the list for a GPU without any link that is up.
_ALL_DOWN = re.compile(r"\s*NVML: Unable to retrieve NVLink information as all links are in-?active\W*", re.IGNORECASE)
_REMEDY = (
    "see 'nvidia-smi nvlink -e' and 'dmesg | grep -i xid' (74) on the node; restart it, and reseat links still down"
)
ACS, NUMA = "ACS", "NUMA"
# Classes of PCI devices: display and 3D controllers, and NVSwitches.
DISPLAYS, SWITCHES = "0x03", "0x0680"
NVIDIA, PCI = "0x10de", Path("/sys/bus/pci/devices")
_HEAD = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ", re.ASCII)
_CONTROL = re.compile(r"\s+(ACS|ATS)Ctl:\s*(?:.*?\b)?(SrcValid|Enable)([+-])", re.ASCII)
_REDIRECT = re.compile(r"\b(?:ReqRedir|CmpltRedir|SrcValid)\+", re.ASCII)


@dataclass
class Links:
    """A GPU's product name, the state of each link, and whether nvidia-smi reports all as down."""

    name: str
    up: dict[int, bool] = field(default_factory=dict)
    all_down: bool = False

    @property
    def count(self) -> int:
        return sum(self.up.values())


def read_links(text: str) -> dict[int, Links]:
    """Return the links by GPU. Other lines are ignored."""
    gpus: dict[int, Links] = {}
    links: Links | None = None
    for line in text.splitlines():
        if gpu := _GPU.fullmatch(line.rstrip()):
            links = gpus.setdefault(int(gpu[1]), Links(gpu[2]))
        elif links is not None and (link := _LINK.fullmatch(line)):
            links.up[int(link[1])] = link[2] is not None and float(link[2]) > 0
        elif links is not None and _ALL_DOWN.fullmatch(line):
            links.all_down = True
    return gpus


def check_links(result: CommandResult | None, switches: int) -> Iterator[Finding]:
    """Check for links that are down. Behind NVSwitches all should be up; elsewhere as many as on similar GPUs.

    (A GPU that is bridged to one other GPU does not use its other links.)
    """
    if result is None:
        return
    gpus = read_links(result.output)
    most: dict[str, int] = {}
    for links in gpus.values():
        most[links.name] = max(most.get(links.name, 0), links.count)
    if switches and not any(links.up or links.all_down for links in gpus.values()):
        output = " ".join(result.output.split())[:200] or "nothing"
        seen = f"{switches} NVSwitches, but 'nvidia-smi nvlink -s' prints {output!r}"
        yield unjudged(NVLINK, seen, "run it on the node")
    nothing_up = not any(most.values())
    for gpu, links in sorted(gpus.items()):
        best = most[links.name]
        # A small card beside GPUs on switches reports all links as down if it has none.
        has_links = bool(links.up) or (links.all_down and bool(best or (switches and nothing_up)))
        down = sorted(link for link, up in links.up.items() if not up)
        if has_links and (links.count < best or (switches and (down or links.all_down))):
            which = ", ".join(map(str, down)) or ("all" if links.all_down else "?")
            seen = f"GPU {gpu}: {links.count} of {len(links.up) or best or 'its'} links are up"
            yield finding("error", NVLINK, f"{seen} (down: {which}; most: {best})", _REMEDY)


@dataclass(frozen=True)
class Controls:
    """PCI addresses of bridges at which ACS redirects traffic, and whether ATS is on by device."""

    redirecting: tuple[str, ...]
    ats: Mapping[str, bool]


def read_lspci(text: str) -> Controls:
    """Return ACSCtl and ATSCtl from `lspci -vvv`. Addresses include the domain."""
    redirecting, ats = [], {}
    address = ""
    for line in text.splitlines():
        if head := _HEAD.match(line):
            address = head[1] if head[1].count(":") == 2 else f"0000:{head[1]}"
        elif address and (control := _CONTROL.match(line)):
            if control[1] == "ACS" and _REDIRECT.search(line) and address not in redirecting:
                redirecting.append(address)
            elif control[1] == "ATS" and control[2] == "Enable":
                ats[address] = control[3] == "+"
    return Controls(tuple(redirecting), ats)


def is_virtual(text: str) -> bool | None:
    """Whether `systemd-detect-virt` names a virtual machine; None if its output is malformed."""
    word = text.strip()
    return None if not re.fullmatch(r"[a-z0-9-]{2,32}", word, re.ASCII) else word != "none"


def check_acs(controls: Controls, virtual: bool | None, gpus: int) -> Iterator[Finding]:
    """Check ACS on bare metal with GPUs and more than one device."""
    if not gpus or not controls.redirecting:
        return
    some = ", ".join(controls.redirecting[:4]) + (", ..." if len(controls.redirecting) > 4 else "")
    seen = f"on at {len(controls.redirecting)} bridges ({some})"
    if virtual is None:
        seen = f"{seen}; it is unknown whether this is a virtual machine"
        yield finding("info", ACS, seen, "see systemd-detect-virt")
    elif virtual:
        seen = f"{seen}, as a virtual machine needs it"
        yield finding("info", ACS, seen, "nothing to do: virtual machines need ATS instead")
    else:
        yield finding(
            "warning", ACS, f"{seen}: GPUs and adapters reach each other only through the CPU",
            "turn ACS off in the firmware setup, or until the next boot at each bridge: "
            "setpci -s ADDRESS ECAP_ACS+0x6.w=0000",
        )  # fmt: skip


def nvidia_devices(kind: str, folder: Path = PCI) -> list[str]:
    """Return the PCI addresses of NVIDIA's devices of a class.

    kind     DISPLAYS or SWITCHES
    folder   the kernel's, of all PCI devices
    """
    return [
        path.parent.name
        for path in sorted(folder.glob("*/vendor"))
        if text_of(path) == NVIDIA and text_of(path.with_name("class")).startswith(kind)
    ]


def check_numa(gpus: list[str], ports: list[Port], root: Path = Path("/")) -> Iterator[Finding]:
    """Check for GPUs whose NUMA node has no adapter, while other NUMA nodes have one."""
    near = {port.numa_node for port in ports if port.active and port.numa_node is not None}
    nodes = {gpu: numa_node(root / "sys/bus/pci/devices" / gpu) for gpu in gpus}
    far = [gpu for gpu, node in nodes.items() if node is not None and node not in near]
    if near and far:
        seen = f"GPUs {', '.join(far)} are on a NUMA node without an adapter (adapters are on {sorted(near)})"
        remedy = "their traffic crosses CPU sockets; add an adapter for each, or keep jobs on GPUs near an adapter"
        yield finding("info", NUMA, seen, remedy)
