"""tailrack-figures: what node exporter does not know of a machine, once a minute, into the folder that it reads.

Usage: tailrack-figures FOLDER COLLECTOR ...     as root, by a timer

Each collector writes one file as a whole. What one has failed to find out is not there any more, and that it has is a
figure of its own: old figures would look like new ones.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from components.roles.live.look import jobs_and_nodes
from components.roles.monitoring.certificate_figures import certificate_figures
from components.roles.monitoring.cost_figures import cost_figures
from components.roles.monitoring.exposition import Metric, exposition
from components.roles.monitoring.gpu_figures import QUERY, gpu_figures
from components.roles.monitoring.measured_figures import measured_figures
from components.roles.monitoring.slurm_figures import slurm_figures
from components.roles.monitoring.tailnet_figures import read_names, tailnet_figures
from components.roles.monitoring.training_figures import TRAINING, training_figures
from components.roles.tools.book import read_book
from components.roles.tools.costs import costs
from components.roles.tools.slurm import SlurmError

TOLD = Path("/etc/tailrack/monitoring.json")
KEPT = Path("/var/lib/tailrack/validation")
# Address and name of each member, on every machine (components/roles/names).
NAMES = Path("/var/lib/tailrack/names")
BACKUP = Path("/var/lib/tailrack/backup-state")
# What this machine shows to those who log in (components/roles/ssh_trust).
CERTIFICATE = Path("/etc/ssh/ssh_host_ed25519_key-cert.pub")
DEVICES = Path("/dev")
LIMIT_SECONDS = 20
NOBODY = 65534


def main(words: Sequence[str]) -> int:
    """Write a file for each collector; 0 whatever they find."""
    folder, *names = words
    for name in names:
        write(Path(folder), name, COLLECTORS[name])
    return 0


def write(folder: Path, name: str, collect: Callable[[], Sequence[Metric]]) -> None:
    """Put a collector's file there as a whole."""
    found: Sequence[Metric] = ()
    began, well = time.monotonic(), True
    try:
        found = collect()
    except (OSError, ValueError, LookupError, TypeError, SlurmError, subprocess.SubprocessError) as error:
        sys.stderr.write(f"{name}: {error}\n")
        well = False
    labels = {"collector": name}
    seconds = time.monotonic() - began
    own = [
        Metric("tailrack_collector_success", "0 where a collector has failed: journalctl says why.", [(labels, well)]),
        Metric("tailrack_collector_seconds", "How long it took.", [(labels, seconds)]),
    ]
    fresh = folder / f".{name}.new"  # what does not end in .prom is not read
    fresh.write_text(exposition([*found, *own]), encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(folder / f"{name}.prom")


def slurm() -> Sequence[Metric]:
    """Of the head node: jobs and nodes, asked for once, and what those cost."""
    jobs, nodes, _ = jobs_and_nodes()
    told = _told()
    # Without what jobs have used: nobody's books are asked once a minute.
    found = costs(read_book(), {node.name: node for node in nodes}, None, time.time())
    return [*slurm_figures(jobs, nodes), *cost_figures(found, told["head"], told["idle_hours"])]


def tailnet() -> Sequence[Metric]:
    """Paths to other members."""
    return tailnet_figures(_said("tailscale", "status", "--json"), read_names(NAMES.read_text(encoding="utf-8")))


def gpus() -> Sequence[Metric]:
    """Nothing where the machine has none. As nobody: root's nvidia-smi makes device files that are missing."""
    if not any(path.name[6:].isdecimal() for path in DEVICES.glob("nvidia[0-9]*")):
        return ()
    return gpu_figures(_said(*QUERY, user=NOBODY))


def certificate() -> Sequence[Metric]:
    """The certificate that it shows; nothing where it has none yet."""
    return certificate_figures(CERTIFICATE.read_text(encoding="utf-8")) if CERTIFICATE.exists() else ()


def _told() -> Mapping[str, Any]:
    told: Mapping[str, Any] = json.loads(TOLD.read_text(encoding="utf-8"))
    return told


def head() -> Sequence[Metric]:
    """Of the head node: the share, the last backup, the measurements."""
    told = _told()
    return [*_share(told["share"]), *_backup(), *_measured(told, _kept())]


def _measured(told: Mapping[str, Any], kept: Mapping[str, Mapping[str, Any]]) -> Sequence[Metric]:
    bandwidth = {scope: found for scope, found in kept.items() if scope != TRAINING}
    trained = training_figures(kept[TRAINING], told.get("training_floor")) if TRAINING in kept else ()
    return [*measured_figures(told, bandwidth), *trained]


def _share(path: str) -> Sequence[Metric]:
    room = os.statvfs(path)
    return [
        Metric("tailrack_share_bytes", "Size of the share's file system.", [({}, room.f_blocks * room.f_frsize)]),
        Metric("tailrack_share_available_bytes", "Bytes of it that are free.", [({}, room.f_bavail * room.f_frsize)]),
    ]


def _backup() -> Sequence[Metric]:
    if not BACKUP.exists():
        return ()
    said = dict(line.split("=", 1) for line in BACKUP.read_text(encoding="utf-8").splitlines() if "=" in line)
    done = said.get("done", "")
    text = "When the last backup of the head node was made; 0 for never."
    return [Metric("tailrack_backup_timestamp_seconds", text, [({}, int(done) if done.isdecimal() else 0)])]


def _kept() -> Mapping[str, Mapping[str, Any]]:
    """What was measured last in each scope; of one whose nodes were busy since, what was measured before."""
    found: dict[str, Mapping[str, Any]] = {}
    for path in sorted(KEPT.glob("*.json"), key=lambda path: path.name.endswith(".last.json")):
        scope = path.name.removesuffix(".json").removesuffix(".last")
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            continue
        if isinstance(told, dict):
            found.setdefault(scope, told)
    return found


def _said(*words: str, user: int | None = None) -> str:
    groups: dict[str, Any] = {} if user is None else {"user": user, "group": user, "extra_groups": []}
    done: subprocess.CompletedProcess[str] = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=LIMIT_SECONDS,
        check=False, **groups,
    )  # fmt: skip
    if done.returncode != 0:
        raise ValueError(f"{words[0]}: {' '.join((done.stderr or done.stdout).split())[:200]}")
    return done.stdout


COLLECTORS: Mapping[str, Callable[[], Sequence[Metric]]] = {
    "slurm": slurm,
    "tailnet": tailnet,
    "gpus": gpus,
    "certificate": certificate,
    "head": head,
}
