"""The fabric of a site: found on each machine, proven between two, given to jobs by Slurm (docs/decisions/0012)."""

from __future__ import annotations

import re

from components.roles.cluster_settings import ClusterSettings
from components.roles.fabric.facts import networks, proven
from components.roles.role import FOLDER, File, Role, SlurmKey, template

PROGRAM = "/usr/local/lib/tailrack/fabric.py"
TASK_PROLOG = "/usr/local/lib/tailrack/task-prolog"
# Where the head node asks a machine to prove its fabric; on the tailnet alone, like Slurm's own.
PORT = "6816"

# A program beside slurmctld, whose text comes with the head node's step, and its timer.
AGAIN = "tailrack-fabric-again"

# The program's modules, each after those that it imports.
_OF_THE_ROLE = ("networks", "rails", "proof", "records", "groups", "fabric")
MODULES = ("settings/network_names", *(f"roles/fabric/{name}" for name in _OF_THE_ROLE))
_OWN_IMPORT = re.compile(r"^from components\..+ import .+\n", re.MULTILINE)


def program() -> str:
    """Return the program as one text: the modules in a row, which share their names, without their imports of one
    another."""
    texts = [_OWN_IMPORT.sub("", (FOLDER.parent / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES]
    return "\n\n".join(["#!/usr/bin/python3", *texts]).removesuffix("\n")


def role(_settings: ClusterSettings) -> Role:
    """Its program is on every machine before the head node knows the machine: one that is there already is asked."""
    return Role(
        "fabric",
        after=("tailnet", "munge"),
        packages={"join": ("python3", "iproute2")},
        files={
            "join": (
                File(PROGRAM, program(), "0755"),
                File(TASK_PROLOG, template("fabric", "task-prolog"), "0755"),
                File("/etc/enroot/mounts.d/60-tailrack.fstab", template("fabric", "enroot.fstab")),
                File("/etc/enroot/hooks.d/60-tailrack.sh", template("fabric", "enroot-hook"), "0755"),
            ),
            "head": tuple(
                File(f"/etc/systemd/system/{AGAIN}.{kind}", template("fabric", f"{AGAIN}.{kind}"))
                for kind in ("service", "timer")
            ),
        },
        facts={"join": {"fabric": networks}, "head": {"fabric": proven}, "member": {"fabric": proven}},
        slurm_conf={
            "TaskProlog": SlurmKey(
                TASK_PROLOG, "jobs would not be told which network NCCL and MPI are to use, and use any or none"
            )
        },
        ports=(PORT,),
        serves=(PORT,),
    )
