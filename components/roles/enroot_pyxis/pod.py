"""Fail jobs that ask for a container on a pod. Slurm would run them there outside of one."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.failure import Failure
from components.node.run import attempt
from components.node.step.step import Step
from components.roles.enroot_pyxis.install import PYXIS_CONF

PLUGIN = "/usr/local/lib/tailrack/no-containers.so"
SOURCE = "/usr/local/lib/tailrack/no-containers.c"


@dataclass(frozen=True)
class RefusalValues:
    """The C source of the plugin."""

    enroot_pyxis_refusal: str


def pod(step: Step, values: RefusalValues) -> None:
    """Compile the plugin for this machine's Slurm, and enable it."""
    # Compile each time: Slurm rejects a plugin of another release.
    files.write(SOURCE, values.enroot_pyxis_refusal)
    fresh = f"{PLUGIN}.new"
    files.remove(fresh)
    on_disk = files.on_disk(fresh), files.on_disk(SOURCE)
    ended = attempt("gcc", "-O2", "-fPIC", "-shared", "-o", *on_disk, keep_errors=True)
    if not ended.ok:
        raise Failure(
            f"gcc cannot build the plugin that refuses containers: {ended.errors.strip()[-300:]}",
            f"run 'gcc -shared -fPIC -o /tmp/plugin.so {SOURCE}' on {step.host}, repair gcc or libslurm-dev, then run "
            "up again",
        )
    files.set_mode(fresh, 0o755)
    # Steps that run keep the file that they have loaded.
    files.rename(fresh, PLUGIN)
    files.write(PYXIS_CONF, f"required {PLUGIN}")
