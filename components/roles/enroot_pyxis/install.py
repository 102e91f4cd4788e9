"""Install Enroot, Pyxis and their settings, from files with known checksums."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.step.step import Step
from components.roles.enroot_pyxis.artifacts import CONTAINERS
from components.roles.enroot_pyxis.enroot import (
    EnrootValues,
    ensure_apparmor,
    ensure_enroot,
    ensure_gpu_libraries,
    ensure_settings,
    ensure_smoke_image,
)
from components.roles.enroot_pyxis.plugin import PLUGIN, PluginValues, ensure_launcher, ensure_plugin

# The cluster's plugstack.conf includes this folder of each machine.
PLUGSTACK = "/etc/tailrack/plugstack.d"
PYXIS_CONF = f"{PLUGSTACK}/pyxis.conf"
_RANKS = "/etc/enroot/hooks.d/50-tailrack-ranks.sh"


@dataclass(frozen=True)
class ContainersValues(PluginValues, EnrootValues):
    """The settings of Enroot and Pyxis."""


def install_containers(step: Step, values: ContainersValues, kind: str) -> None:
    """Install them. `kind`: the kind of plugin that this machine needs."""
    files.make_folder(CONTAINERS)
    ensure_enroot(step, values)
    if not files.is_plain(_RANKS):
        raise Failure(f"{_RANKS} is missing", "run up again")
    ensure_apparmor(step)
    ensure_gpu_libraries(step, values)
    ensure_plugin(step, values, kind)
    ensure_launcher(step)
    ensure_settings(step, values)
    ensure_smoke_image()
    # `required` makes slurmd and job steps fail if the plugin is missing. Last, because this line enables it.
    options = (
        "runtime_path=/run/pyxis container_scope=global importer=/usr/local/lib/tailrack/importer use_squashfuse=1"
    )
    files.write(PYXIS_CONF, f"required {PLUGIN} {options}")
