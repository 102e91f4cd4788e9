"""Fail jobs that ask for a container on a pod. Slurm would run them there outside of one."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.step import Step
from components.roles.enroot_pyxis.install import PYXIS_CONF
from components.roles.pod.compiler import SHARED, compile_library

PLUGIN = "/usr/local/lib/tailrack/no-containers.so"
SOURCE = "/usr/local/lib/tailrack/no-containers.c"


@dataclass(frozen=True)
class RefusalValues:
    """The C source of the plugin."""

    enroot_pyxis_refusal: str


def pod(step: Step, values: RefusalValues) -> None:
    """Compile the plugin for this machine's Slurm, and enable it."""
    # Compile each time: Slurm rejects a plugin of another release.
    named, needs = "the plugin that refuses containers", "gcc or libslurm-dev"
    compile_library(values.enroot_pyxis_refusal, SOURCE, PLUGIN, SHARED, step.host, named=named, needs=needs)
    files.write(PYXIS_CONF, f"required {PLUGIN}")
