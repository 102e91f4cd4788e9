"""ACS, ATS and NUMA nodes of GPUs, adapters and the bridges between them.

ACS sends traffic between two devices by way of the root complex. On bare metal it should be off; on a virtual machine
the host needs it, and what counts is that the adapter has ATS. One value for every device is therefore wrong.
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
    """Of PCI addresses: bridges at which ACS redirects traffic, and devices to whether their ATS is on."""

    redirecting: tuple[str, ...]
    ats: Mapping[str, bool]


def read_lspci(text: str) -> Controls:
    """Return what `lspci -vvv` says of ACSCtl and ATSCtl. Addresses have a domain."""
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
    """Whether `systemd-detect-virt` names a virtual machine; None where it names nothing that it could."""
    word = text.strip()
    return None if not re.fullmatch(r"[a-z0-9-]{2,32}", word, re.ASCII) else word != "none"


def check_acs(controls: Controls, virtual: bool | None, gpus: int) -> Iterator[Finding]:
    """ACS on bare metal with more than one device that could speak to another."""
    if not gpus or not controls.redirecting:
        return
    few = ", ".join(controls.redirecting[:4]) + (", ..." if len(controls.redirecting) > 4 else "")
    seen = f"on at {len(controls.redirecting)} bridges ({few})"
    if virtual is None:
        yield finding(
            "info", ACS, f"{seen}; nobody can say here whether this is a virtual machine", "see systemd-detect-virt"
        )
    elif virtual:
        yield finding("info", ACS, f"{seen}, as a virtual machine needs it", "nothing: on virtual machines ATS counts")
    else:
        yield finding(
            "warning", ACS, f"{seen}: GPUs and adapters reach one another by way of the CPU",
            "turn it off in the firmware's setup, or at each: setpci -s ADDRESS ECAP_ACS+0x6.w=0000 (until the next "
            "boot)",
        )  # fmt: skip


def nvidia_devices(kind: str, root: Path = Path("/")) -> list[str]:
    """PCI addresses of NVIDIA's devices of a class: `03` GPUs, `0680` NVSwitches."""
    return [
        path.parent.name
        for path in sorted((root / "sys/bus/pci/devices").glob("*/vendor"))
        if text_of(path) == NVIDIA and text_of(path.with_name("class")).startswith(f"0x{kind}")
    ]


def check_numa(gpus: list[str], ports: list[Port], root: Path = Path("/")) -> Iterator[Finding]:
    """GPUs whose NUMA node has no adapter, where others have one."""
    near = {port.numa_node for port in ports if port.active and port.numa_node is not None}
    nodes = {gpu: numa_node(root / "sys/bus/pci/devices" / gpu) for gpu in gpus}
    far = [gpu for gpu, node in nodes.items() if node is not None and node not in near]
    if near and far:
        yield finding(
            "info", NUMA, f"GPUs {', '.join(far)} are on a NUMA node without an adapter (those are on {sorted(near)})",
            "their traffic crosses the sockets; put an adapter on each, or keep jobs on the GPUs near one",
        )  # fmt: skip
