"""Collect the data about a node's GPUs and network that only root can read, in /run/tailrack/health.json for all users.

Usage: python3 tailrack-health [FILE]. Role gpu installs this single file; a task runs it as root.

The file is `{"time": seconds, "looks": {NAME: {"status": number or null, "output": text}}}`. The status is null after a
timeout, and 127 if the command is missing. A command that waits for a broken GPU may be unkillable: it is left behind.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

HEALTH = Path("/run/tailrack/health.json")
LIMIT_SECONDS = 60
# Healthy processes wait for hardware only for moments.
WAITING_SECONDS = 2
# With hundreds of processes, the answer for eight GPUs exceeds a megabyte.
MOST_BYTES = 3_000_000
# For outputs that are filtered before they are stored.
MOST_BYTES_READ = 40_000_000
MOST_EVENTS = 500
NOBODY = 65534
_EVENT = re.compile(
    r"NVRM: Xid|NVRM: .*fallen off the bus|nvidia-nvswitch\d+: SXid .*fatal,|mlx5_core .*(?:health|fatal|assert)",
    re.IGNORECASE,
)
_PCI = re.compile(r"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] |^\s+(?:ACSCap|ACSCtl|ATSCtl):", re.IGNORECASE)

Result = dict[str, object]


def run(command: list[str], *, as_nobody: bool = False, most: int = MOST_BYTES) -> Result:
    """Run a command with a time limit; `as_nobody` runs it as user nobody."""
    # A file, because a process that is left behind would keep a pipe open.
    with tempfile.TemporaryFile() as file:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=_environment(),
                start_new_session=True, user=NOBODY if as_nobody else None, group=NOBODY if as_nobody else None,
                extra_groups=[] if as_nobody else None,
            )  # fmt: skip
        except OSError as error:
            return {"status": 127 if isinstance(error, FileNotFoundError) else 126, "output": str(error)}
        try:
            status: int | None = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            status = None
        file.seek(0)
        return {"status": status, "output": file.read(most).decode("utf-8", "replace")}


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def waiting(name: str, proc: Path = Path("/proc")) -> set[str]:
    """Return the processes of a name that wait for hardware, in a state that no signal ends."""
    pids = set()
    for path in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if f"({name}) D " in path.read_text(encoding="utf-8", errors="replace"):
                pids.add(path.parent.name)
    return pids


def nvidia_smi(*arguments: str, as_nobody: bool) -> Result:
    """Run nvidia-smi, unless an earlier one still hangs: each further one would hang forever too."""
    stuck = waiting("nvidia-smi")
    if stuck:
        time.sleep(WAITING_SECONDS)
    if stuck & waiting("nvidia-smi"):
        return {"status": None, "output": "an earlier nvidia-smi still hangs"}
    return run(["nvidia-smi", *arguments], as_nobody=as_nobody)


def matching_lines(result: Result, pattern: re.Pattern[str], most: int) -> Result:
    lines = [line for line in str(result["output"]).splitlines() if pattern.search(line)]
    return {**result, "output": "\n".join(lines[-most:])}


def in_container() -> bool:
    """Whether this is a container: as root, nvidia-smi would create device files that it must not have."""
    return not Path("/run/systemd/system").is_dir() or run(["systemd-detect-virt", "-cq"])["status"] == 0


def kernel_events() -> Result:
    log = run(["journalctl", "-k", "-b", "-o", "short-iso", "--no-pager"], most=MOST_BYTES_READ)
    if log["status"] != 0 or not str(log["output"]).strip():
        ring = run(["dmesg"], most=MOST_BYTES_READ)
        # Use a damaged journal anyway if the ring buffer cannot be read.
        log = ring if ring["status"] == 0 or not str(log["output"]).strip() else log
    return matching_lines(log, _EVENT, MOST_EVENTS)


def adapter_settings() -> Result:
    adapters = sorted({os.path.realpath(path / "device") for path in Path("/sys/class/infiniband").glob("mlx5_*")})
    results = [
        (Path(adapter).name, run(["mlxconfig", "-d", Path(adapter).name, "query", "ATS_ENABLED"]))
        for adapter in adapters
    ]
    worst = next((result["status"] for _, result in results if result["status"] != 0), 0)
    return {"status": worst, "output": "\n".join(f"# {name}\n{result['output']}" for name, result in results)}


def management_ports() -> Result:
    """Return the RDMA devices that manage a baseboard's NVLink switches: they carry no job's data.

    Only their vital product data identifies them, which only root can read.
    """
    devices = []
    for adapter in sorted(Path("/sys/class/infiniband").glob("*")):
        with contextlib.suppress(OSError):
            if b"SW_MNG" in (adapter / "device/vpd").read_bytes():
                devices.append(adapter.name)
    return {"status": 0, "output": "\n".join(devices)}


def commands() -> dict[str, Callable[[], Result]]:
    as_nobody = in_container()
    return {
        "virtualization": lambda: run(["systemd-detect-virt"]),
        "nvidia-smi": lambda: nvidia_smi("-q", "-x", as_nobody=as_nobody),
        "nvlink": lambda: nvidia_smi("nvlink", "-s", as_nobody=as_nobody),
        "fabric manager": lambda: run(["systemctl", "is-active", "nvidia-fabricmanager"]),
        "kernel": kernel_events,
        "lspci": lambda: matching_lines(run(["lspci", "-D", "-vvv"], most=MOST_BYTES_READ), _PCI, 20_000),
        "mlxconfig": adapter_settings,
        "management ports": management_ports,
        "dcgm health": lambda: run(["dcgmi", "health", "-g", "0", "-c", "-j"]),
    }


def collect(commands: dict[str, Callable[[], Result]]) -> dict[str, Result]:
    """Run all commands side by side; one that does not end is left behind, with an empty result."""
    results: dict[str, Result] = {}

    def run_one(name: str, command: Callable[[], Result]) -> None:
        try:
            results[name] = command()
        except Exception as error:  # noqa: BLE001  a failure is a result too
            results[name] = {"status": 126, "output": repr(error)}

    threads = [threading.Thread(target=run_one, args=item, daemon=True) for item in commands.items()]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LIMIT_SECONDS + 10
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return {name: results.get(name, {"status": None, "output": ""}) for name in commands}


def write(path: Path, results: dict[str, Result]) -> None:
    """Write the file atomically, readable by all users."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps({"time": int(time.time()), "looks": results}), encoding="utf-8")
    new.chmod(0o644)
    new.replace(path)


if __name__ == "__main__":
    os.umask(0o022)
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HEALTH, collect(commands()))
    # Do not wait for threads that still hang.
    os._exit(0)
