"""The one list of a node's checks: what is looked at before a measurement, every two minutes, and by hand.

A check is made by whoever it is of use to (`by`): JOB is the preflight, a plain user's job; NODE is root on the node
itself (tailrack-nhc, tailrack-checks), beside jobs that go on. What drains a node is an error that NODE finds. What
nobody can judge on a machine (an answer of an unknown form, say) is UNJUDGED and drains none.
"""

from __future__ import annotations

import resource
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from components.validation.preflight import (
    adapters,
    foreign,
    gpus,
    lost_ports,
    memory,
    node,
    nvlink,
    own_clock,
    pci,
    storage,
    xids,
)
from components.validation.preflight.findings import Finding, at_most_warnings, finding
from components.validation.preflight.health import Health, Look
from components.validation.preflight.neighbour import CLOCK

HEALTH = Path("/run/tailrack/health.json")
OLD_SECONDS = 3600
COMMAND_SECONDS = 10
UNIT = "see 'journalctl -u tailrack-health' on the node, and 'systemctl start tailrack-health' there"
JOB, NODE = "job", "node"


def said_by(*command: str) -> str:
    """What a command prints; empty where it fails or takes too long."""
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=COMMAND_SECONDS
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


@dataclass(frozen=True)
class Machine:
    """What checks are given; the rest is read when a check asks for it.

    gpus     that Slurm gives to jobs of this node
    health   what root's collector wrote; None where it has not looked
    share    where the share should be mounted; empty where nobody says
    events   lines of the kernel's log with GPUs' events, beside those of the collector
    before   what the ports were
    jobs     how many run here; None where nobody knows
    """

    gpus: int
    health: Health | None
    share: str = ""
    events: str = ""
    before: lost_ports.Before = field(default_factory=lost_ports.Before)
    jobs: int | None = None
    root: Path = Path("/")
    said: Callable[..., str] = said_by

    def text(self, name: str) -> str:
        """What a command of the collector printed; empty where it gave no answer. Its status may be a warning's."""
        return self.health.output(name) if self.health else ""

    def look(self, name: str) -> Look | None:
        return self.health.looks.get(name) if self.health else None

    @cached_property
    def ports(self) -> list[adapters.Port]:
        managing = set(self.text("management ports").split())
        return [port for port in adapters.read_ports(self.root) if port.device not in managing]

    @cached_property
    def on_the_bus(self) -> list[str]:
        return pci.nvidia_devices("03", self.root)

    @cached_property
    def switches(self) -> int:
        return len(pci.nvidia_devices("0680", self.root))

    @cached_property
    def virtual(self) -> bool | None:
        return pci.is_virtual(self.said("systemd-detect-virt"))

    @cached_property
    def container(self) -> bool:
        return pci.is_virtual(self.said("systemd-detect-virt", "-c")) or False

    @cached_property
    def controls(self) -> pci.Controls:
        return pci.read_lspci(self.text("lspci"))

    @cached_property
    def mounts(self) -> storage.Mounts:
        return storage.read_mounts(adapters.text_of(self.root / "proc/self/mountinfo", 4_000_000))


@dataclass(frozen=True)
class Check:
    """name   what its findings go by, or most of them
    look     yields them
    by       who makes it
    gpus     of nodes with GPUs alone
    """

    name: str
    look: Callable[[Machine], Iterable[Finding]]
    by: frozenset[str] = frozenset({JOB, NODE})
    gpus: bool = False


_JOB, _NODE = frozenset({JOB}), frozenset({NODE})


def check_health_file(health: Health | None, promised: int, now: float) -> Iterable[Finding]:
    """Whether the collector has looked, and lately."""
    if not promised:
        return
    if health is None:
        yield finding("warning", gpus.HEALTH, f"nobody has looked at the GPUs: no {HEALTH} of root's", UNIT)
    elif now - health.time > OLD_SECONDS:
        minutes = int(now - health.time) // 60
        yield finding("warning", gpus.HEALTH, f"the last look at the GPUs is {minutes} minutes old", UNIT)


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


CHECKS: tuple[Check, ...] = (
    Check(gpus.HEALTH, lambda on: check_health_file(on.health, on.gpus, time.time())),
    Check(gpus.HEALTH, lambda on: gpus.check_gpus(on.look("nvidia-smi"), on.gpus), gpus=True),
    Check(gpus.COUNT, lambda on: gpus.check_driver_count(on.gpus, on.root), _NODE, gpus=True),
    Check(foreign.FOREIGN, lambda _on: foreign.check_foreign(foreign.used()), _JOB, gpus=True),
    Check(gpus.FABRIC, lambda on: gpus.check_fabric_manager(on.look("fabric manager"), on.switches), gpus=True),
    Check(nvlink.NVLINK, lambda on: nvlink.check_links(on.look("nvlink"), on.switches), gpus=True),
    Check(xids.XID, lambda on: xids.check_xids(on.text("kernel"), on.events)),
    Check(xids.SXID, lambda on: xids.check_switches(on.text("kernel"), on.events)),
    Check(xids.XID, lambda on: xids.check_log(on.look("kernel"), on.gpus)),
    Check(node.DEVICES, lambda on: node.check_driver(on.on_the_bus, on.gpus, on.container, on.root)),
    # A job's own limit, memory and cgroup: nothing of them is there outside of one.
    Check(
        node.MEMLOCK,
        lambda on: node.check_memlock(_limit(), bool(on.gpus) or any(port.active for port in on.ports)), _JOB,
    ),
    Check(node.SHARED, lambda on: node.check_shared(node.free_bytes(on.root / "dev/shm"), on.gpus)),
    Check(
        node.CONFINED,
        lambda on: node.check_confined(adapters.text_of(on.root / "proc/self/cgroup"), on.gpus), _JOB,
    ),
    Check(node.DEVICES, lambda on: node.check_devices(on.gpus, on.root)),
    # A port that was never up may be meant to be so: what drains a node is one that was.
    Check(adapters.PORT, lambda on: adapters.check_ports(on.ports), _JOB),
    Check(adapters.PORT, lambda on: at_most_warnings(adapters.check_ports(on.ports)), _NODE),
    Check(adapters.PORT, lambda on: lost_ports.check_lost(on.ports, on.before, time.time()), _NODE),
    Check(adapters.DIRECT, lambda on: adapters.check_direct(on.ports, on.gpus, on.root)),
    Check(
        adapters.ROCE,
        lambda on: adapters.check_roce(
            on.ports, adapters.read_mlxconfig(on.text("mlxconfig")), on.controls.ats, bool(on.virtual)
        ),
    ),
    Check(pci.ACS, lambda on: pci.check_acs(on.controls, on.virtual, on.gpus)),
    Check(pci.NUMA, lambda on: pci.check_numa(on.on_the_bus if on.gpus else [], on.ports, on.root)),
    Check(storage.SHARE, lambda on: storage.check_share(on.share, lambda: on.mounts), _NODE),
    Check(storage.DISK, lambda on: storage.check_disks(on.mounts, root=on.root)),
    Check(memory.MEMORY, lambda on: memory.check_errors(on.root)),
    Check(memory.MEMORY, lambda on: memory.check_idle(on.jobs, on.root), _NODE),
    Check(
        CLOCK,
        lambda on: own_clock.check_kept(
            "" if on.container else on.said("timedatectl", "show", "-p", "NTPSynchronized", "--value"), on.container
        ),
    ),
)  # fmt: skip


def guarded(check: str, make: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """The findings of a check; where it fails in a way nobody thought of, that."""
    try:
        return list(make())
    except Exception as error:  # noqa: BLE001  one check must not take the others with it
        return [finding("info", check, f"could not be looked at: {type(error).__name__}", "report this, please")]


def run(machine: Machine, by: str) -> list[Finding]:
    """All findings of those checks that are somebody's, in the list's order."""
    return [
        each
        for check in CHECKS
        if by in check.by and (machine.gpus or not check.gpus)
        for each in guarded(check.name, lambda check=check: check.look(machine))  # type: ignore[misc]
    ]
