"""The scripts around jobs, the health check and the settings of the benchmark check."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from components.node import files, systemd
from components.node.parts import do_each
from components.node.run import attempt
from components.node.state import STATE_DIR
from components.node.step.step import Step
from components.roles.health.gpu_records import FINDINGS, GPUS

RECORDS = f"{STATE_DIR}/deep-check"
LIB = "/usr/local/lib/tailrack"
SHARE_MOUNTED = "/etc/tailrack/share-mounted"
REASON = "tailrack-reason.service"
DEEP_CHECK_SETTINGS = "/etc/tailrack/deep-check.json"
_HEALTH_CHECK = "/usr/local/sbin/tailrack-nhc"
_PRIVATE_JOBS = "/run/tailrack-private/jobs"


@dataclass(frozen=True)
class Script:
    """A script from the config. kind: `prolog` or `epilog`; text: in base64."""

    kind: str
    name: str
    text: str

    @property
    def path(self) -> str:
        """Return its path below LIB."""
        return f"{self.kind}.d/{self.name}"


@dataclass(frozen=True)
class ScriptValues:
    """The scripts of a node.

    health_enabled      False if the config turns health off
    health_ours         tailrack's scripts: `prolog.d/NAME`
    """

    health_enabled: bool
    health_scripts: list[Script]
    health_ours: list[str]


@dataclass(frozen=True)
class HealthValues(ScriptValues):
    """nfs_exports_mount   where the share must be mounted"""

    nfs_exports_mount: str


def compute(step: Step, values: HealthValues) -> None:
    """Install the config's scripts before slurmd starts."""
    if install_scripts(values):
        files.write(SHARE_MOUNTED, values.nfs_exports_mount)
        systemd.reload(REASON)


def pod(step: Step, values: ScriptValues) -> None:
    """Install those of a pod."""
    install_scripts(values)


def install_scripts(values: ScriptValues) -> bool:
    """Install the config's scripts, and remove those that are no longer in it; all if the config turns health off.

    Return whether it is on.
    """
    if not values.health_enabled:
        # The comment of the health check in Slurm. A controller that does not answer stops nothing.
        if files.exists(_HEALTH_CHECK):
            attempt(_HEALTH_CHECK, "--clear")
        remove_health()
        return False
    for script in values.health_scripts:
        files.write(f"{LIB}/{script.path}", base64.b64decode(script.text).decode(), 0o755)
    wanted = {*values.health_ours, *(script.path for script in values.health_scripts)}
    for kind in ("prolog.d", "epilog.d"):
        for name in files.names_in(f"{LIB}/{kind}"):
            if f"{kind}/{name}" not in wanted:
                files.remove(f"{LIB}/{kind}/{name}")
    return True


@dataclass(frozen=True)
class Leaving:
    """The name of the node."""

    node_name: str


def forget(step: Step, values: Leaving) -> None:
    """Remove a leaving node's records of the benchmark check."""
    files.remove(f"{RECORDS}/{values.node_name}.json")
    files.remove(f"{RECORDS}/{GPUS}/{values.node_name}.json")


@dataclass(frozen=True)
class DeepCheckSettings:
    """The settings of the check as JSON; empty if it is off."""

    head_deep_check: str


def services(step: Step, values: DeepCheckSettings) -> None:
    """Install the settings of the benchmark check, or remove it."""
    if not values.head_deep_check:
        remove_deep_check()
        return
    files.make_folder(RECORDS, 0o700)
    files.write(DEEP_CHECK_SETTINGS, values.head_deep_check, 0o600)


def leave(step: Step) -> None:
    """Remove tailrack's scripts and checks."""
    do_each(remove_deep_check, remove_health)


def remove_health() -> None:
    """Remove tailrack's and the config's scripts, the health check, and their records."""
    systemd.retire(REASON)
    for folder in (f"{LIB}/prolog.d", f"{LIB}/epilog.d", _PRIVATE_JOBS, f"{STATE_DIR}/health"):
        files.remove_folder(folder)
    programs = (f"{LIB}/gpus-in-use", "/usr/local/sbin/tailrack-checks", _HEALTH_CHECK)
    records = (f"/run/tailrack/{name}" for name in ("unhealthy", "verdict.json", "last-failure.json"))
    for path in (*programs, *records, SHARE_MOUNTED, f"{_PRIVATE_JOBS}.lock"):
        files.remove(path)


def remove_deep_check() -> None:
    """Remove the benchmark check. Its records of nodes stay, in case the check is turned on again."""
    for path in ("/usr/local/sbin/tailrack-deep-check", DEEP_CHECK_SETTINGS, str(FINDINGS)):
        files.remove(path)
