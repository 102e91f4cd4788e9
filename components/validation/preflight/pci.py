"""ACS, ATS and NUMA nodes of GPUs, adapters and bridges.

ACS redirects traffic between two devices through the root complex. On bare metal it should be off; on a virtual machine
the host needs it, and the adapter needs ATS instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from components.validation.preflight.adapters import Port, numa_node, text_of
from components.validation.preflight.findings import Finding, finding

ACS, NUMA = "ACS", "NUMA"
NVIDIA = "0x10de"
_HEAD = re.compile(r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) ", re.ASCII)
_CONTROL = re.compile(r"\s+(ACS|ATS)Ctl:\s*(?:.*?\b)?(SrcValid|Enable)([+-])", re.ASCII)
_REDIRECT = re.compile(r"\b(?:ReqRedir|CmpltRedir|SrcValid)\+", re.ASCII)


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
        yield finding(
            "info", ACS, f"{seen}; it is unknown whether this is a virtual machine", "see systemd-detect-virt"
        )
    elif virtual:
        yield finding(
            "info", ACS, f"{seen}, as a virtual machine needs it", "nothing to do: virtual machines need ATS instead"
        )
    else:
        yield finding(
            "warning", ACS, f"{seen}: GPUs and adapters reach each other only through the CPU",
            "turn ACS off in the firmware setup, or until the next boot at each bridge: "
            "setpci -s ADDRESS ECAP_ACS+0x6.w=0000",
        )  # fmt: skip


def nvidia_devices(kind: str, root: Path = Path("/")) -> list[str]:
    """Return the PCI addresses of NVIDIA's devices of a class: `03` GPUs, `0680` NVSwitches."""
    return [
        path.parent.name
        for path in sorted((root / "sys/bus/pci/devices").glob("*/vendor"))
        if text_of(path) == NVIDIA and text_of(path.with_name("class")).startswith(f"0x{kind}")
    ]


def check_numa(gpus: list[str], ports: list[Port], root: Path = Path("/")) -> Iterator[Finding]:
    """Check for GPUs whose NUMA node has no adapter, while other NUMA nodes have one."""
    near = {port.numa_node for port in ports if port.active and port.numa_node is not None}
    nodes = {gpu: numa_node(root / "sys/bus/pci/devices" / gpu) for gpu in gpus}
    far = [gpu for gpu, node in nodes.items() if node is not None and node not in near]
    if near and far:
        yield finding(
            "info", NUMA,
            f"GPUs {', '.join(far)} are on a NUMA node without an adapter (adapters are on {sorted(near)})",
            "their traffic crosses CPU sockets; add an adapter for each, or keep jobs on GPUs near an adapter",
        )  # fmt: skip
