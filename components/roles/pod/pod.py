"""Set up a pod for jobs: the library for the tailnet, the users' homes, and the program of the next start."""

from __future__ import annotations

from dataclasses import dataclass

from components.node import files
from components.node.step.kept import FOLDER as PLANS
from components.node.step.step import Step
from components.roles.pod.homes import make_homes
from components.roles.pod.library import CONF, build_library, conf_text
from components.roles.pod.network import use_network
from components.roles.pod.paths import BOOT, READY
from components.roles.pod.saved import require_room, save
from components.roles.tailnet import tailscale
from components.roles.users.accounts import UsersValues

TASK_PROLOG = "/usr/local/lib/tailrack/task-prolog"


@dataclass(frozen=True)
class PodValues(UsersValues):
    """The texts of files.

    pod_library       the source of the library
    pod_task_prolog   Slurm's TaskProlog
    pod_boot          the program of the next start
    node_boot_plan, node_boot_values   its plan and values, as JSON
    node_fabric, node_neighbours   see use_network
    """

    pod_library: str
    pod_task_prolog: str
    pod_boot: str
    node_boot_plan: str
    node_boot_values: str
    node_fabric: str
    node_neighbours: str


def pod(step: Step, values: PodValues) -> None:
    """Write the files, and build the library."""
    require_room(step.host)
    build_library(values.pod_library, step.host)
    files.write(CONF, conf_text(tailscale.address()))
    files.write(TASK_PROLOG, values.pod_task_prolog, 0o755)
    use_network(values.node_fabric, values.node_neighbours, step.host)
    make_homes(values, step.host)
    files.write(f"{PLANS}/boot.json", f"{values.node_boot_plan}\n{values.node_boot_values}")
    files.write(READY, "")

    def save_all() -> None:
        save(step.host)
        # It runs a program that must be saved before.
        files.write(BOOT, values.pod_boot, 0o700)

    step.later.append(save_all)
