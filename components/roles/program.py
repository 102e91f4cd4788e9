"""The program that runs on hosts, as an archive: components/node, and the modules of roles that it imports."""

import bz2
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from components.node.install import FOLDER as INSTALLED
from components.node.pack import packed
from components.validation import job_files

_FOLDER = Path(__file__).parents[2]

# The commands of the program: the module whose `main` takes the arguments, or `MODULE:FUNCTION`.
COMMANDS = {
    "as-user": "components.node.accounts",
    "ask": "components.roles.access.ssh_trust.ask",
    "ask-ras": "components.roles.jobs.job_hangs.ras",
    "authority": "components.roles.access.ssh_trust.certificate:show_authorities",
    "backup": "components.roles.storage.backup.program",
    "boot-check": "components.roles.monitoring.health.boot_check",
    "certificate": "components.roles.access.ssh_trust.certificate",
    "data-files": "components.roles.storage.datasets.programs:work_with_files",
    "data-head": "components.roles.storage.datasets.plan",
    "data-stage": "components.roles.storage.datasets.stage",
    "deep-check": "components.roles.monitoring.health.deep_check",
    "fabric": "components.roles.network.fabric.proof",
    "fabric-again": "components.roles.network.fabric.host:again",
    "figures": "components.roles.monitoring.monitoring.figures",
    "gpu-health": "components.validation.preflight.collect",
    "gpu-use": "components.roles.monitoring.usage.sample_gpus",
    "gpus-in-use": "components.validation.preflight.holders",
    "health-check": "components.validation.preflight.health_check",
    "job-gpu-use": "components.roles.monitoring.usage.job_gpu_use",
    "job-hangs": "components.roles.jobs.job_hangs.find_hangs",
    "job-hangs-here": "components.roles.jobs.job_hangs.watch",
    "job-reports": "components.roles.jobs.job_reports.daemon",
    "kept": "components.node.step.main:run_kept",
    "leftovers": "components.roles.monitoring.health.leftovers",
    "measure": "components.validation.measurement_run",
    "measure-storage": "components.validation.job_runs:measure_storage",
    "measure-training": "components.validation.job_runs:measure_training",
    "minute": "components.node.minute",
    "mlflow-accounts": "components.roles.jobs.mlflow.accounts",
    "mlflow-start": "components.roles.jobs.mlflow.start",
    "mounts": "components.roles.storage.mounts.watch",
    "munge-next": "components.roles.slurm.munge.switch_key:receive_next",
    "munge-release": "components.roles.slurm.munge.held_jobs",
    "munge-switch": "components.roles.slurm.munge.switch_key:switch_key",
    "names": "components.roles.network.names.names",
    "node-checks": "components.validation.preflight.node_checks",
    "pod-boot": "components.roles.pods.pod.saved:boot",
    "pod-cut-off": "components.roles.pods.pod_staging.steps:end_cut_off_steps",
    "pod-files": "components.roles.pods.pod_staging.steps:run_rsync",
    "pod-link": "components.roles.pods.pod_staging.transfer:link",
    "pod-lost-jobs": "components.roles.slurm.slurm.pod:end_lost_jobs",
    "pod-staging": "components.roles.pods.pod_staging.stage",
    "pod-staging-ask": "components.roles.pods.pod_staging.stage:ask",
    "retry-jobs": "components.roles.slurm.slurm.retry",
    "save-jobs": "components.roles.slurm.slurm.jobs:save_jobs",
    "scratch-clean": "components.roles.storage.scratch.sweep",
    "share": "components.roles.storage.share.protect",
    "sign": "components.roles.access.ssh_trust.sign",
    "sll": "components.roles.commands.sll.sll",
    "slurm-room": "components.roles.slurm.slurm.room",
    "spot-notice": "components.roles.jobs.spot_notice.watch",
    "step": "components.node.step.main",
    "tailrack": "components.roles.commands.tailrack.main",
}
# `step` starts this module, which unpacks the program of a step that brings it.
_INSTALL = "components.node.install"


@dataclass(frozen=True)
class Program:
    """A zip archive, and its name.

    archive   the bytes of the archive, the same wherever it is made
    """

    archive: bytes

    @cached_property
    def compressed(self) -> bytes:
        """Return the archive compressed. All versions of bzip2 make the same bytes, unlike zlib's."""
        return bz2.compress(self.archive)

    @cached_property
    def digest(self) -> str:
        """Return the SHA-256 of the archive, in hexadecimal. It is also the name of its folder on a machine."""
        return hashlib.sha256(self.archive).hexdigest()


@cache
def program() -> Program:
    """Return the whole program."""
    return Program(packed(COMMANDS, (_INSTALL, *job_files.COMMANDS.values(), *_phases()), job_files.FILES))


@cache
def step_program(module: str) -> Program:
    """Return a program for steps that call only one module."""
    return Program(packed({"step": COMMANDS["step"]}, (_INSTALL, module)))


def command_line(*words: str) -> str:
    """Return the command line of one of its commands on a machine."""
    return " ".join(["/usr/bin/python3 -I -S", f"{INSTALLED}/{program().digest}", *words])


def launcher(*words: str) -> str:
    """Return the text of a file that runs one of its commands with the file's arguments."""
    return f'#!/bin/sh\nexec {command_line(*words)} "$@"'


def python_launcher(command: str) -> str:
    """Return the text of a launcher for another Python than the system's, which runs it as a script."""
    return f"""import sys

sys.path.insert(0, "{INSTALLED}/{program().digest}")
from components.node.commands import main

sys.exit(main(["{command}", *sys.argv[1:]]))"""


def version(command: str) -> str:
    """Return a text that changes with the modules of one command, unlike a launcher, which changes with all of them."""
    return hashlib.sha256(packed({command: COMMANDS[command]})).hexdigest()[:16]


def _phases() -> Iterator[str]:
    """Yield the modules that steps call: those that import the step."""
    for folder in ("roles/*/*", "measurement_jobs"):
        for path in sorted(_FOLDER.glob(f"components/{folder}/*.py")):
            if "from components.node.step.step import" in path.read_text(encoding="utf-8"):
                yield ".".join(path.relative_to(_FOLDER).with_suffix("").parts)
