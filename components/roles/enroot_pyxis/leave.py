"""Remove containers from Slurm on this machine. Enroot and users' containers stay."""

from __future__ import annotations

from functools import partial

from components.node import files
from components.node.parts import do_each
from components.node.step.step import Step
from components.roles.enroot_pyxis.artifacts import CONTAINERS
from components.roles.enroot_pyxis.enroot import MPI_HOOK, PROGRAM_SETTINGS, SETTINGS, TMPFILES
from components.roles.enroot_pyxis.head import PLUGSTACK_CONF
from components.roles.enroot_pyxis.install import PLUGSTACK, PYXIS_CONF
from components.roles.enroot_pyxis.plugin import DROP_IN, LAUNCHER, PLUGIN
from components.roles.enroot_pyxis.services import IMPORT_PROGRAM, LOGINS, WORK

_LIB = "/usr/local/lib/tailrack"
_FILES = (
    *(TMPFILES, SETTINGS, PLUGIN, LAUNCHER, f"{_LIB}/importer", IMPORT_PROGRAM, PROGRAM_SETTINGS),
    *("/usr/local/sbin/tailrack-containers", DROP_IN, "/etc/enroot/hooks.d/50-tailrack-ranks.sh", MPI_HOOK),
)


def leave(step: Step) -> None:
    """Remove what tailrack has installed."""
    # Left over from an import that was killed; logins (.credentials) first.
    do_each(*(partial(files.remove_folder, path) for path in (LOGINS, WORK)))
    if not files.exists(PYXIS_CONF):
        return
    do_each(
        *(partial(files.remove, path) for path in _FILES),
        partial(files.remove_folder, CONTAINERS),
        partial(files.remove_lines, PLUGSTACK_CONF, lambda line: line.startswith(f"include {PLUGSTACK}/")),
        # Last, because this file marks that the rest may still be here.
        partial(files.remove, PYXIS_CONF),
    )
