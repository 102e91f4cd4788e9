"""Install the scripts that run before and after each job, and the health check, before slurmd starts."""

from __future__ import annotations

import base64
from dataclasses import dataclass

from components.node import files, systemd
from components.node.step.step import Step
from components.roles.health.remove import LIB, REASON, SHARE_MOUNTED, clear_comment, remove_health


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
    """Install them; remove scripts that are no longer in the config."""
    if not values.health_enabled:
        clear_comment()
        remove_health()
        return
    install_scripts(values)
    files.write(SHARE_MOUNTED, values.nfs_exports_mount)
    systemd.reload(REASON)


def install_scripts(values: ScriptValues) -> None:
    """Install the config's scripts, and remove those that are no longer in it."""
    for script in values.health_scripts:
        files.write(f"{LIB}/{script.path}", base64.b64decode(script.text).decode(), 0o755)
    wanted = {*values.health_ours, *(script.path for script in values.health_scripts)}
    for kind in ("prolog.d", "epilog.d"):
        for name in files.names_in(f"{LIB}/{kind}"):
            if f"{kind}/{name}" not in wanted:
                files.remove(f"{LIB}/{kind}/{name}")
