"""Run slurmd as a dynamic node.

It sends its own hardware description, and gets its configuration from the controller.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from components.node import files, systemd
from components.node.kernel import cpu_limit
from components.node.run import run
from components.node.step.step import STATE_DIR, Step
from components.node.waiting import wait_for
from components.roles.slurm.foreign_files import set_foreign_slurm_aside
from components.roles.slurm.live_features import live_features, set_live_features
from components.roles.slurm.node_state import NodeState, Registration, read_node
from components.roles.slurm.place import wait_for_place
from components.roles.slurm.profiles import OWN_CGROUP_CONF, OWN_SLURM_CONF
from components.roles.slurm.recreate import recreate_node
from components.roles.slurm.shutdown import requeue_jobs_at_shutdown, seconds_to_save
from components.roles.slurm.usable import REGISTER_LIMIT, Usability
from components.roles.slurm_release.install import INSTALLED
from components.roles.slurm_release.reservations import end_turn, unreserve_node
from components.validation.slurm_nodes import UNCONFINED

_UNIT = "slurmd.service"
_WATCHDOG = "tailrack-slurmd-watchdog.service"
_SHUTDOWN = "tailrack-shutdown.service"
CONTROLLER_PORT = 6817
# An option of slurmd at its first start on the machine of a placeholder: it reports that the machine has just booted.
# Slurm ignores machines that booted before it asked for one, such as those that were only waiting to be used.
_NEW_BOOT = "/run/tailrack-slurmd-boot"

# The text of this machine's own files (join.py) that slurmd has read.
_KEYS_IN_USE = f"{STATE_DIR}/own-slurm-keys"


@dataclass(frozen=True)
class ComputeValues:
    """The values of this node.

    node_features, node_gres   Slurm features and gres (`site-x,pool-a`, `gpu:h200:8` or empty)
    node_registered_mb         memory that the node registers, a little less than it has
    node_reserved_mb           part of it that jobs cannot use
    head_address               tailnet address of slurmctld
    slurm_job_limit_seconds    seconds to wait for jobs to end
    slurm_save_seconds, slurm_save_jobs, node_spot   see shutdown.py
    head_cgroups, node_confined   whether cgroups confine jobs on the head node, and on this machine
    node_promised_cpus         not 0 if the node is a placeholder, whose features and so on slurmctld has already
    """

    node_features: str
    node_gres: str
    node_registered_mb: int
    node_reserved_mb: int
    head_address: str
    slurm_job_limit_seconds: int
    slurm_save_seconds: int
    slurm_save_jobs: str
    node_spot: str
    head_cgroups: bool
    node_confined: bool
    node_promised_cpus: int

    @property
    def is_placeholder(self) -> bool:
        return self.node_promised_cpus > 0

    @property
    def registration(self) -> Registration:
        return Registration(frozenset(self.node_features.split(",")), self.node_gres, self.node_reserved_mb)


def compute(step: Step, values: ComputeValues) -> None:
    """Register this node, and wait until the controller gives it jobs."""
    watchdog_changed = step.changed
    set_foreign_slurm_aside()
    unit_changed = _install_units(step.host, values)
    # slurmctld reconfigures slurmd if slurm.conf begins to include this machine's own file, not if that file changes.
    own_keys = "\n".join([*files.lines(OWN_SLURM_CONF), *files.lines(OWN_CGROUP_CONF)])
    keys_changed = files.read(_KEYS_IN_USE) not in (None, f"{own_keys}\n")
    node = read_node(step.host) if systemd.is_active("slurmd") else None
    if values.is_placeholder and (node is None or "POWERING_UP" in node.flags):
        files.write(_NEW_BOOT, "TAILRACK_SLURMD_BOOT=-b")
        node = None
    if node is None:
        # slurmd registers only when it starts, so restart it if the controller has forgotten this node.
        node = _start_slurmd(step.host)
        unit_changed = keys_changed = False
    if node and registers_otherwise(node, values) and not values.is_placeholder:
        recreate_node(step.host, node, values.slurm_job_limit_seconds)
    elif unit_changed or keys_changed:
        # Jobs continue without slurmd.
        systemd.restart_later("slurmd")
    usability = Usability(step.host, values.head_address)
    usability.require()
    files.remove(_NEW_BOOT)
    if files.exists(INSTALLED):
        unreserve_node(step.host)
    end_turn(step.host)
    if wait_for_place(step.host, values.head_address):
        usability.require()
    files.write(_KEYS_IN_USE, own_keys)
    # If no node confines jobs, none has the feature.
    set_live_features(step.host, "slurm", [UNCONFINED] if values.head_cgroups and not values.node_confined else [])
    _start_helpers(restart=watchdog_changed)
    step.result("slurm_version", run("slurmd", "-V").split()[1])


def _registered_cpus() -> int | None:
    """Return the CPUs of a container that may use fewer than its machine has; None elsewhere: slurmd counts them."""
    cpus = cpu_limit()
    return cpus if cpus and cpus < (os.cpu_count() or 1) else None


def registers_otherwise(node: NodeState, values: ComputeValues) -> bool:
    """Return whether a node must be created again, because only that changes these parts of it."""
    return _without_live(node.registration) != values.registration or _has_other_size(node, values)


def _has_other_size(node: NodeState, values: ComputeValues) -> bool:
    """Return whether a container's limit has changed: slurmctld drains a node that registers less than before.

    A few MB less, after a kernel update, are no reason.
    """
    cpus = _registered_cpus()
    return bool(cpus and node.cpus and node.cpus != cpus) or values.node_registered_mb < node.memory_mb * 9 // 10


def _without_live(registration: Registration) -> Registration:
    return replace(registration, features=registration.features - live_features())


def _install_units(host: str, values: ComputeValues) -> bool:
    """Write and enable the units, and return whether slurmd's changed."""
    changed = files.write(f"{systemd.UNITS}/{_UNIT}.d/tailrack.conf", _slurmd_unit(host, values))
    systemd.write_restart("slurmd.service")
    requeue_jobs_at_shutdown(host, seconds_to_save(values.slurm_save_seconds, values.node_spot), values.slurm_save_jobs)
    systemd.reload(_UNIT, _WATCHDOG, _SHUTDOWN)
    systemd.enable(_UNIT, _WATCHDOG, _SHUTDOWN)
    return changed


def _slurmd_unit(host: str, values: ComputeValues) -> str:
    server, boot = f"{values.head_address}:{CONTROLLER_PORT}", ""
    if values.is_placeholder:
        # Not dynamic: the controller has the node's line.
        options, boot = f"-N {host} --conf-server {server} $TAILRACK_SLURMD_BOOT", f"EnvironmentFile=-{_NEW_BOOT}\n"
    else:
        options = f'-Z -N {host} --conf-server {server} --conf "{dynamic_conf(values)}"'
    return f"""[Unit]
# Slurm uses only the tailnet, so its address and names must exist first.
After=munge.service tailrack-tailnet.service tailrack-names.service
Wants=munge.service
Requires=tailrack-names.service

[Service]
TimeoutStartSec=infinity
# Jobs inherit it from slurmd; NCCL and RDMA pin memory.
LimitMEMLOCK=infinity
{boot}ExecStart=
# Other roles set the last argument in their own files in this folder.
ExecStart=/usr/sbin/slurmd --systemd {options} \
$TAILRACK_SLURMD_OPTIONS"""


def dynamic_conf(values: ComputeValues) -> str:
    """Return the description with which a dynamic node registers."""
    conf = (
        f"Feature={values.node_features} RealMemory={values.node_registered_mb} MemSpecLimit={values.node_reserved_mb}"
    )
    if cpus := _registered_cpus():
        conf = f"CPUs={cpus} {conf}"
    if values.node_gres:
        conf += f" Gres={values.node_gres}"
    return conf


def _start_slurmd(host: str) -> NodeState | None:
    systemd.restart_later("slurmd")
    return wait_for(lambda: read_node(host), REGISTER_LIMIT)


def _start_helpers(*, restart: bool) -> None:
    if restart:
        run("systemctl", "start", "tailrack-shutdown")
        run("systemctl", "restart", "tailrack-slurmd-watchdog")
    else:
        run("systemctl", "start", "tailrack-shutdown", "tailrack-slurmd-watchdog")
