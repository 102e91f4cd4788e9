"""What root alone can see of a node's GPUs and their network, written to /run/tailrack/health.json for everybody.

Usage: python3 tailrack-health [FILE]. Role gpu installs this file by itself and runs it by a timer, as root.

It looks and judges nothing: `{"time": seconds, "looks": {NAME: {"status": number or null, "output": text}}}`. The
status is null where a command gave no answer in time, and 127 where there is none of that name. A command that waits
for a broken GPU cannot always be killed; it is left behind, and the other looks go on.
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
# A process in its ordinary work waits for hardware for moments only.
WAITING_SECONDS = 2
# Eight GPUs on which hundreds of processes compute say more than a megabyte.
MOST_BYTES = 3_000_000
# Of what is filtered before it is kept.
MOST_BYTES_READ = 40_000_000
MOST_EVENTS = 500
NOBODY = 65534
_EVENT = re.compile(
    r"NVRM: Xid|NVRM: .*fallen off the bus|nvidia-nvswitch\d+: SXid .*fatal,|mlx5_core .*(?:health|fatal|assert)",
    re.IGNORECASE,
)
_PCI = re.compile(r"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] |^\s+(?:ACSCap|ACSCtl|ATSCtl):", re.IGNORECASE)

Look = dict[str, object]


def run(command: list[str], *, plain: bool = False, most: int = MOST_BYTES) -> Look:
    """Run a command with a limit; `plain`: as nobody, whatever it is told to do."""
    # In a file: nobody waits for the end of a pipe that a process left behind still holds.
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT, env=_environment(),
                start_new_session=True, user=NOBODY if plain else None, group=NOBODY if plain else None,
                extra_groups=[] if plain else None,
            )  # fmt: skip
        except OSError as error:
            return {"status": 127 if isinstance(error, FileNotFoundError) else 126, "output": str(error)}
        try:
            status: int | None = process.wait(LIMIT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            status = None
        said.seek(0)
        return {"status": status, "output": said.read(most).decode("utf-8", "replace")}


def _environment() -> dict[str, str]:
    return {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


def waiting(name: str, proc: Path = Path("/proc")) -> set[str]:
    """Processes of a name that wait for hardware, and that no signal ends."""
    found = set()
    for path in proc.glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if f"({name}) D " in path.read_text(encoding="utf-8", errors="replace"):
                found.add(path.parent.name)
    return found


def nvidia_smi(*words: str, plain: bool) -> Look:
    """Ask nvidia-smi, but where an earlier one still hangs: each more would be one more that stays for ever."""
    before = waiting("nvidia-smi")
    if before:
        time.sleep(WAITING_SECONDS)
    if before & waiting("nvidia-smi"):
        return {"status": None, "output": "an nvidia-smi of an earlier look still hangs"}
    return run(["nvidia-smi", *words], plain=plain)


def kept(look: Look, wanted: re.Pattern[str], most: int) -> Look:
    """A look with the lines that matter, the last ones."""
    lines = [line for line in str(look["output"]).splitlines() if wanted.search(line)]
    return {**look, "output": "\n".join(lines[-most:])}


def in_container() -> bool:
    """Whether this is a container, whose device files are what it was given: as root, nvidia-smi would make others."""
    return run(["systemd-detect-virt", "-cq"])["status"] == 0


def kernel_events() -> Look:
    """Events of GPUs and adapters in the kernel's log of this boot."""
    log = run(["journalctl", "-k", "-b", "-o", "short-iso", "--no-pager"], most=MOST_BYTES_READ)
    if log["status"] != 0 or not str(log["output"]).strip():
        ring = run(["dmesg"], most=MOST_BYTES_READ)
        # A journal with a damaged file is still worth reading where the ring buffer is closed.
        log = ring if ring["status"] == 0 or not str(log["output"]).strip() else log
    return kept(log, _EVENT, MOST_EVENTS)


def adapter_settings() -> Look:
    """`mlxconfig` of each Mellanox adapter, one after the other."""
    adapters = sorted({os.path.realpath(path / "device") for path in Path("/sys/class/infiniband").glob("mlx5_*")})
    looks = [
        (Path(adapter).name, run(["mlxconfig", "-d", Path(adapter).name, "query", "ATS_ENABLED"]))
        for adapter in adapters
    ]
    worst = next((look["status"] for _, look in looks if look["status"] != 0), 0)
    return {"status": worst, "output": "\n".join(f"# {name}\n{look['output']}" for name, look in looks)}


def management_ports() -> Look:
    """RDMA devices of a baseboard by which its NVLink switches are managed, one a line: no way for anybody's data.

    They say so in their vital product data alone, which only root may read.
    """
    found = []
    for adapter in sorted(Path("/sys/class/infiniband").glob("*")):
        with contextlib.suppress(OSError):
            if b"SW_MNG" in (adapter / "device/vpd").read_bytes():
                found.append(adapter.name)
    return {"status": 0, "output": "\n".join(found)}


def looks() -> dict[str, Callable[[], Look]]:
    """Every look by its name."""
    plain = in_container()
    return {
        "virtualization": lambda: run(["systemd-detect-virt"]),
        "nvidia-smi": lambda: nvidia_smi("-q", "-x", plain=plain),
        "nvlink": lambda: nvidia_smi("nvlink", "-s", plain=plain),
        "fabric manager": lambda: run(["systemctl", "is-active", "nvidia-fabricmanager"]),
        "kernel": kernel_events,
        "lspci": lambda: kept(run(["lspci", "-D", "-vvv"], most=MOST_BYTES_READ), _PCI, 20_000),
        "mlxconfig": adapter_settings,
        "management ports": management_ports,
    }


def collect(wanted: dict[str, Callable[[], Look]]) -> dict[str, Look]:
    """Make all looks side by side; one that does not end is left behind, as a look without an answer."""
    found: dict[str, Look] = {}

    def make(name: str, look: Callable[[], Look]) -> None:
        try:
            found[name] = look()
        except Exception as error:  # noqa: BLE001  a look that fails is a result too
            found[name] = {"status": 126, "output": repr(error)}

    threads = [threading.Thread(target=make, args=each, daemon=True) for each in wanted.items()]
    for thread in threads:
        thread.start()
    end = time.monotonic() + LIMIT_SECONDS + 10
    for thread in threads:
        thread.join(max(0.0, end - time.monotonic()))
    return {name: found.get(name, {"status": None, "output": ""}) for name in wanted}


def write(path: Path, found: dict[str, Look]) -> None:
    """Write the whole file or nothing of it; everybody may read it."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps({"time": int(time.time()), "looks": found}), encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(path)


if __name__ == "__main__":
    os.umask(0o022)
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else HEALTH, collect(looks()))
    # Not by way of threads that still wait.
    os._exit(0)
