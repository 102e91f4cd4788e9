"""The list of a node's checks: before a measurement, every two minutes, and by hand.

`by` names the programs that make a check: JOB is the preflight, a plain user's job; NODE is root on the node
(tailrack-nhc, tailrack-checks), while jobs run; POD is the same on a pod, which sees the kernel log and the adapters of
its host. Only an error that NODE or POD finds drains a node. A check that cannot judge
its input reports UNJUDGED and never drains.
"""

import resource
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from components.node.waiting import within
from components.validation.preflight import adapters, dcgm, foreign, gpus, links, node, storage, xids
from components.validation.preflight.findings import HEALTH, CommandResult, Finding, Health, at_most_warnings, finding
from components.validation.preflight.neighbour import CLOCK
from components.validation.this_node import stdout_of, text_of

OLD_SECONDS = 3600
UNIT = "on the node, see 'journalctl -u tailrack-health' and run 'systemctl start tailrack-health'"
JOB, NODE, POD = "job", "node", "pod"


@dataclass(frozen=True)
class Machine:
    """The input of the checks; other data is read on demand.

    gpus     GPUs that Slurm gives to jobs of this node
    health   data of root's collector; None if it has not run
    share    mount point of the share; empty if unknown
    events   kernel log lines with GPU events, besides the collector's
    port_history   earlier states of the ports
    jobs     number of running jobs; None if unknown
    stdout   runs a command and returns its output
    """

    gpus: int
    health: Health | None
    share: str = ""
    events: str = ""
    port_history: adapters.PortHistory = field(default_factory=adapters.PortHistory)
    jobs: int | None = None
    root: Path = Path("/")
    stdout: Callable[..., str] = stdout_of

    def text(self, name: str) -> str:
        """Return the output of a collector's command, whatever its status, which may be a mere warning; else empty."""
        return self.health.output(name) if self.health else ""

    def result(self, name: str) -> CommandResult | None:
        return self.health.results.get(name) if self.health else None

    @cached_property
    def ports(self) -> list[adapters.Port]:
        return adapters.data_ports(self.health, self.root)

    @cached_property
    def on_the_bus(self) -> list[str]:
        return links.nvidia_devices(links.DISPLAYS, self.root / "sys/bus/pci/devices")

    @cached_property
    def switches(self) -> int:
        return len(links.nvidia_devices(links.SWITCHES, self.root / "sys/bus/pci/devices"))

    @cached_property
    def virtual(self) -> bool | None:
        return links.is_virtual(self.stdout("systemd-detect-virt"))

    @cached_property
    def container(self) -> bool:
        return links.is_virtual(self.stdout("systemd-detect-virt", "-c")) or False

    @cached_property
    def controls(self) -> links.Controls:
        return links.read_lspci(self.text("lspci"))

    @cached_property
    def mounts(self) -> storage.Mounts:
        return storage.read_mounts(text_of(self.root / "proc/self/mountinfo"))


@dataclass(frozen=True)
class Check:
    """name   check name of its findings, or most of them
    run    yields the findings
    by     programs that make the check
    gpus   whether only nodes with GPUs have it
    """

    name: str
    run: Callable[[Machine], Iterable[Finding]]
    by: frozenset[str] = frozenset({JOB, NODE})
    gpus: bool = False


_JOB, _NODE, _POD = frozenset({JOB}), frozenset({NODE}), frozenset({POD})
_ALL = _JOB | _NODE | _POD


def check_health_file(health: Health | None, promised: int, now: float) -> Iterable[Finding]:
    if not promised:
        return
    if health is None:
        yield finding("warning", gpus.HEALTH, f"the GPUs have not been checked: root has not written {HEALTH}", UNIT)
    elif not within(OLD_SECONDS, health.time, now):
        minutes = int(now - health.time) // 60
        yield finding("warning", gpus.HEALTH, f"the last check of the GPUs is {minutes} minutes old", UNIT)


def _limit() -> int:
    return resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]


CHECKS: tuple[Check, ...] = (
    Check(gpus.HEALTH, lambda on: check_health_file(on.health, on.gpus, time.time()), _ALL),
    Check(gpus.HEALTH, lambda on: gpus.check_gpus(on.result("nvidia-smi"), on.gpus), _ALL, gpus=True),
    Check(gpus.COUNT, lambda on: gpus.check_driver_count(on.gpus, on.root), _NODE, gpus=True),
    Check(foreign.FOREIGN, lambda _on: foreign.check_foreign(foreign.used()), _JOB, gpus=True),
    Check(gpus.FABRIC, lambda on: gpus.check_fabric_manager(on.result("fabric manager"), on.switches), gpus=True),
    Check(links.NVLINK, lambda on: links.check_links(on.result("nvlink"), on.switches), gpus=True),
    Check(dcgm.CHECK, lambda on: dcgm.check_watches(on.result(dcgm.COMMAND)), gpus=True),
    Check(xids.XID, lambda on: xids.check_xids(on.text("kernel"), on.events)),
    Check(xids.SXID, lambda on: xids.check_switches(on.text("kernel"), on.events)),
    Check(xids.XID, lambda on: xids.check_log(on.result("kernel"), on.gpus)),
    Check(node.DEVICES, lambda on: node.check_driver(on.on_the_bus, on.gpus, on.container, on.root)),
    # The limit, the memory and the cgroup of a job exist only inside a job.
    Check(
        node.MEMLOCK,
        lambda on: node.check_memlock(_limit(), bool(on.gpus) or any(port.active for port in on.ports)), _JOB,
    ),
    Check(node.SHARED, lambda on: node.check_shared(node.free_bytes(on.root / "dev/shm"), on.gpus), _ALL),
    Check(
        node.CONFINED,
        lambda on: node.check_confined(text_of(on.root / "proc/self/cgroup"), on.gpus), _JOB,
    ),
    Check(node.DEVICES, lambda on: node.check_devices(on.gpus, on.root), _ALL),
    # A port that was never up may be unused on purpose; only a port that was up before drains a node.
    Check(adapters.PORT, lambda on: adapters.check_ports(on.ports), _JOB),
    Check(adapters.PORT, lambda on: at_most_warnings(adapters.check_ports(on.ports)), _NODE),
    Check(adapters.PORT, lambda on: adapters.check_lost(on.ports, on.port_history, time.time()), _NODE),
    Check(adapters.DIRECT, lambda on: adapters.check_direct(on.ports, on.gpus, on.root)),
    Check(
        adapters.ROCE,
        lambda on: adapters.check_roce(
            on.ports, adapters.read_mlxconfig(on.text("mlxconfig")), on.controls.ats, bool(on.virtual)
        ),
    ),
    Check(links.ACS, lambda on: links.check_acs(on.controls, on.virtual, on.gpus)),
    Check(links.NUMA, lambda on: links.check_numa(on.on_the_bus if on.gpus else [], on.ports, on.root)),
    Check(storage.SHARE, lambda on: storage.check_share(on.share, lambda: on.mounts), _NODE),
    Check(storage.DISK, lambda on: storage.check_disks(on.mounts, root=on.root)),
    Check(storage.DISK, lambda on: storage.check_disks(on.mounts, storage.PLACES_OF_POD, on.root), _POD),
    Check(storage.MOUNT, lambda on: storage.check_mounts(on.root, time.time())),
    Check(node.MEMORY, lambda on: node.check_memory_errors(on.root)),
    Check(node.MEMORY, lambda on: node.check_idle_memory(on.jobs, on.root), _NODE),
    Check(node.PROFILING, lambda on: node.check_profiling(on.root), _NODE),
    Check(node.VERSIONS, lambda on: node.check_versions(on.root), _NODE),
    Check(
        CLOCK,
        lambda on: node.check_synchronized(
            "" if on.container else on.stdout("timedatectl", "show", "-p", "NTPSynchronized", "--value"), on.container
        ),
    ),
)  # fmt: skip


def guarded(check: str, make: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check; if the check raises, one finding that reports the exception."""
    try:
        return list(make())
    except Exception as error:  # noqa: BLE001  one broken check must not stop the others
        return [finding("info", check, f"the check failed: {type(error).__name__}", "please report this")]


def run(machine: Machine, by: str) -> list[Finding]:
    """Return all findings of one program's checks, in the list's order."""
    return [
        item
        for check in CHECKS
        if by in check.by and (machine.gpus or not check.gpus)
        for item in guarded(check.name, lambda check=check: check.run(machine))  # type: ignore[misc]
    ]
