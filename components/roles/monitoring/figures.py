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

from components.roles.monitoring.certificate_figures import certificate_figures
from components.roles.monitoring.cost_figures import cost_figures
from components.roles.monitoring.exposition import Metric, exposition
from components.roles.monitoring.gpu_figures import QUERY, gpu_figures
from components.roles.monitoring.measured_figures import measured_figures
from components.roles.monitoring.slurm_figures import slurm_figures
from components.roles.monitoring.tailnet_figures import read_names, tailnet_figures
from components.roles.monitoring.training_figures import TRAINING, training_figures
from components.roles.sll.query import jobs_and_nodes
from components.roles.tailrack_command.book import read_book
from components.roles.tailrack_command.costs import costs
from components.validation.preflight.findings import plain

TOLD = Path("/etc/tailrack/monitoring.json")
KEPT = Path("/var/lib/tailrack/validation")
# Address and name of each member, on every machine (components/roles/names).
NAMES = Path("/var/lib/tailrack/names")
BACKUP = Path("/var/lib/tailrack/backup-state")
# A folder a member, the head node among them, on the head node alone (components/roles/names).
MEMBERS = Path("/var/lib/tailrack/members")
SLURM_STATE = Path("/var/lib/slurm/slurmctld")
# What this machine shows to those who log in (components/roles/ssh_trust).
CERTIFICATE = Path("/etc/ssh/ssh_host_ed25519_key-cert.pub")
DEVICES = Path("/dev")
LIMIT_SECONDS = 20
NOBODY = 65534
# Of one collector: more would keep Prometheus from taking anything from this machine (services.sh).
MOST_FIGURES = 6000


def main(words: Sequence[str]) -> int:
    """Write a file for each collector; 0 whatever they find."""
    folder, *names = words
    for name in names:
        write(Path(folder), name, COLLECTORS[name])
    return 0


def write(folder: Path, name: str, collect: Callable[[], Sequence[Metric]]) -> None:
    """Put a collector's file there as a whole."""
    text, began, well = "", time.monotonic(), True
    try:
        metrics = collect()
        if (count := sum(len(metric.samples) for metric in metrics)) > MOST_FIGURES:
            raise ValueError(f"{count} figures, and {MOST_FIGURES} are taken")
        text = exposition(metrics)
    except Exception as error:  # noqa: BLE001  words of a user and of a node's root are read; they end no other collector
        sys.stderr.write(f"{name}: {plain(f'{type(error).__name__}: {error}')}\n")
        well = False
    labels = {"collector": name}
    seconds = time.monotonic() - began
    own = [
        Metric("tailrack_collector_success", "0 where a collector has failed: journalctl says why.", [(labels, well)]),
        Metric("tailrack_collector_seconds", "How long it took.", [(labels, seconds)]),
    ]
    fresh = folder / f".{name}.new"  # what does not end in .prom is not read
    fresh.write_text(text + exposition(own), encoding="utf-8")
    fresh.chmod(0o644)
    fresh.replace(folder / f"{name}.prom")


def slurm() -> Sequence[Metric]:
    """Of the head node: jobs and nodes, asked for once, and what those cost."""
    jobs, nodes, _ = jobs_and_nodes()
    told = _told()
    # Without what jobs have used: nobody's books are asked once a minute.
    found = costs(read_book(), {node.name: node for node in nodes}, None, time.time())
    members = _members()
    return [
        *slurm_figures(jobs, [node for node in nodes if node.name in members]),
        *cost_figures(found, told["head"], told["idle_hours"]),
    ]


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
    """Of the head node: the share, the disk under Slurm's state, the last backup."""
    share = _room("tailrack_share_bytes", "tailrack_share_available_bytes", "the share's file system", _told()["share"])
    state = _room(
        "tailrack_slurm_state_bytes",
        "tailrack_slurm_state_available_bytes",
        "the file system that Slurm's state is on",
        SLURM_STATE,
    )
    return [*share, *state, *_backup()]


def measured() -> Sequence[Metric]:
    """Of the head node: the measurements. They are words of a user, which take no other figures along."""
    told, kept = _told(), _kept()
    bandwidth = {scope: found for scope, found in kept.items() if scope != TRAINING}
    trained = training_figures(kept[TRAINING], told.get("training_floor")) if TRAINING in kept else ()
    return [*measured_figures(told, bandwidth, _members()), *trained]


def _members() -> frozenset[str]:
    """Names of the cluster's machines as its steps have them: root of a node can make others up in slurmctld."""
    return frozenset(path.name for path in MEMBERS.iterdir())


def _room(size: str, free: str, what: str, path: str | Path) -> Sequence[Metric]:
    room = os.statvfs(path)
    return [
        Metric(size, f"Size of {what}.", [({}, room.f_blocks * room.f_frsize)]),
        Metric(free, "Bytes of it that are free.", [({}, room.f_bavail * room.f_frsize)]),
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
    "measured": measured,
}
