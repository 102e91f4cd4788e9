"""Collect the data about a node's GPUs and network that only root can read, in /run/tailrack/health.json for all users.

The command `gpu-health [FILE]` of the program; a task runs it as root.

The file is `{"time": seconds, "looks": {NAME: {"status": number or null, "output": text}}}`. The status is null after a
timeout, and 127 if the command is missing. A command that waits for a broken GPU may be unkillable: it is left behind.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from components.node.accounts import as_user
from components.node.run import attempt_bounded
from components.validation.preflight.adapters import manages_switches
from components.validation.preflight.findings import HEALTH, CommandResult
from components.validation.this_node import save, text_of

# Without a persistence daemon, nvidia-smi initialises every GPU first.
LIMIT_SECONDS = 60
NOBODY = "nobody"  # <!-- codespell:ignore -->
# Healthy processes wait for hardware only for moments.
WAITING_SECONDS = 2
# With hundreds of processes, the answer for eight GPUs exceeds a megabyte.
MOST_BYTES = 3_000_000
# For outputs that are filtered before they are stored.
MOST_BYTES_READ = 40_000_000
MOST_EVENTS = 500
_EVENT = re.compile(
    r"NVRM: Xid|NVRM: .*fallen off the bus|nvidia-nvswitch\d+: SXid .*fatal,|mlx5_core .*(?:health|fatal|assert)",
    re.IGNORECASE,
)
_PCI = re.compile(r"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] |^\s+(?:ACSCap|ACSCtl|ATSCtl):", re.IGNORECASE)


def run(*command: str, as_nobody: bool = False, most: int = MOST_BYTES) -> CommandResult:
    """Run a command with a time limit; `as_nobody` runs it as user nobody."""
    if as_nobody:
        both = ("sh", "-c", 'exec "$@" 2>&1', "sh")
        ended = as_user(NOBODY, *both, *command, limit=LIMIT_SECONDS, most=most)
    else:
        ended = attempt_bounded(*command, limit=LIMIT_SECONDS, most=most, environment={"LC_ALL": "C"})
    return CommandResult(None if ended.status == 124 else ended.status, ended.output or ended.errors)


def waiting(name: str, proc: Path = Path("/proc")) -> set[str]:
    """Return the processes of a name that wait for hardware, in a state that no signal ends."""
    return {path.parent.name for path in proc.glob("[0-9]*/stat") if f"({name}) D " in text_of(path)}


def nvidia_smi(*arguments: str, as_nobody: bool) -> CommandResult:
    """Run nvidia-smi, unless an earlier one still hangs: each further one would hang forever too."""
    stuck = waiting("nvidia-smi")
    if stuck:
        time.sleep(WAITING_SECONDS)
    if stuck & waiting("nvidia-smi"):
        return CommandResult(None, "an earlier nvidia-smi still hangs")
    return run("nvidia-smi", *arguments, as_nobody=as_nobody)


def matching_lines(result: CommandResult, pattern: re.Pattern[str], most: int) -> CommandResult:
    lines = [line for line in result.output.splitlines() if pattern.search(line)]
    return replace(result, output="\n".join(lines[-most:]))


def in_container() -> bool:
    """Whether this is a container: as root, nvidia-smi would create device files that it must not have."""
    return not Path("/run/systemd/system").is_dir() or run("systemd-detect-virt", "-cq").status == 0


def kernel_events() -> CommandResult:
    log = run("journalctl", "-k", "-b", "-o", "short-iso", "--no-pager", most=MOST_BYTES_READ)
    if log.status != 0 or not log.output.strip():
        ring = run("dmesg", most=MOST_BYTES_READ)
        # Use a damaged journal anyway if the ring buffer cannot be read.
        log = ring if ring.status == 0 or not log.output.strip() else log
    return matching_lines(log, _EVENT, MOST_EVENTS)


def adapter_settings() -> CommandResult:
    adapters = sorted({os.path.realpath(path / "device") for path in Path("/sys/class/infiniband").glob("mlx5_*")})
    results = {
        name: run("mlxconfig", "-d", name, "query", "ATS_ENABLED") for name in (Path(path).name for path in adapters)
    }
    worst = next((result.status for result in results.values() if result.status != 0), 0)
    return CommandResult(worst, "\n".join(f"# {name}\n{result.output}" for name, result in results.items()))


def management_ports() -> CommandResult:
    """Return the RDMA devices that manage a baseboard's NVLink switches: they carry no job's data."""
    adapters = sorted(Path("/sys/class/infiniband").glob("*"))
    return CommandResult(0, "\n".join(adapter.name for adapter in adapters if manages_switches(adapter)))


def commands() -> dict[str, Callable[[], CommandResult]]:
    as_nobody = in_container()
    return {
        "nvidia-smi": lambda: nvidia_smi("-q", "-x", as_nobody=as_nobody),
        "nvlink": lambda: nvidia_smi("nvlink", "-s", as_nobody=as_nobody),
        "fabric manager": lambda: run("systemctl", "is-active", "nvidia-fabricmanager"),
        "kernel": kernel_events,
        "lspci": lambda: matching_lines(run("lspci", "-D", "-vvv", most=MOST_BYTES_READ), _PCI, 20_000),
        "mlxconfig": adapter_settings,
        "management ports": management_ports,
        "dcgm health": lambda: run("dcgmi", "health", "-g", "0", "-c", "-j"),
    }


def collect(commands: dict[str, Callable[[], CommandResult]]) -> dict[str, CommandResult]:
    """Run all commands side by side; one that does not end is left behind, with an empty result."""
    results: dict[str, CommandResult] = {}

    def run_one(name: str, command: Callable[[], CommandResult]) -> None:
        try:
            results[name] = command()
        except Exception as error:  # noqa: BLE001  a failure is a result too
            results[name] = CommandResult(126, repr(error))

    threads = [threading.Thread(target=run_one, args=item, daemon=True) for item in commands.items()]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LIMIT_SECONDS + 10
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return {name: results.get(name, CommandResult(None, "")) for name in commands}


def write(path: Path, results: dict[str, CommandResult]) -> None:
    """Write the file, readable by all users."""
    looks = {name: asdict(result) for name, result in results.items()}
    save(path, {"time": int(time.time()), "looks": looks}, 0o644)


def main(arguments: Sequence[str]) -> None:
    """Collect, and end at once, without waiting for threads that still hang."""
    os.umask(0o022)
    write(Path(arguments[0]) if arguments else HEALTH, collect(commands()))
    os._exit(0)
