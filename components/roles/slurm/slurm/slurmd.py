"""Run slurmd as a dynamic node. It sends its own hardware description, and gets its configuration from the controller.

Units requeue its jobs when the machine shuts down, and end the rest of jobs. With cgroups, jobs run in a scope that
slurmd creates without their dependencies; its name is one of two, by how Slurm was built (MULTIPLE_SLURMD in
src/plugins/cgroup/v2/cgroup_v2.c). No unit may refer to the scope: systemd would keep an ended one loaded, and slurmd,
which can only create it, would not start again before a reboot.
"""

import os
from dataclasses import dataclass, replace

from components.node import files, services, systemd
from components.node.failure import Failure
from components.node.files import File
from components.node.kernel import cpu_limit
from components.node.locks import PRIVATE
from components.node.log import STATE_DIR, note
from components.node.run import attempt, run
from components.node.step.step import Step
from components.node.systemd import UNITS, is_active
from components.node.waiting import wait_for, wait_until
from components.roles.slurm.slurm import folders, node_state
from components.roles.slurm.slurm.jobs import clear_jobs
from components.roles.slurm.slurm.profiles import OWN_CGROUP_CONF, OWN_GRES_CONF, OWN_SLURM_CONF
from components.roles.slurm.slurm_release.reservations import end_turn, unreserve_node
from components.slurm_commands import slurm
from components.slurm_commands.nodes import UNCONFINED, Node

_UNIT = "slurmd.service"
_WATCHDOG = "tailrack-slurmd-watchdog.service"
_SHUTDOWN = "tailrack-shutdown.service"
CONTROLLER_PORT = 6817
# An option of slurmd at its first start on the machine of a placeholder: it reports that the machine has just booted.
# Slurm ignores machines that booted before it asked for one, such as those that were only waiting to be used.
_NEW_BOOT = "/run/tailrack-slurmd-boot"
# The text of this machine's own files (host.py) that slurmd has read.
_KEYS_IN_USE = f"{STATE_DIR}/own-slurm-keys"
_SHUTDOWN_UNIT = """[Unit]
Description=Requeue jobs when this machine shuts down
# Stops before the connection to the controller, the share and the jobs, which it needs.
After=slurmd.service slurmctld.service munge.service tailscaled.service tailrack-tailnet.service tailrack-names.service
After=remote-fs.target
Wants=remote-fs.target
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
{save}ExecStop=/usr/local/sbin/tailrack-shutdown
TimeoutStopSec={limit}

[Install]
WantedBy=multi-user.target"""
_SCOPE = """# Written by tailrack: how the rest of jobs ends.
[Unit]
Before=tailrack-shutdown.service
CollectMode=inactive-or-failed

[Scope]
TimeoutStopSec=5
# The kernel ends a job that exceeds its memory; systemd would end all jobs of the node too.
OOMPolicy=continue"""
SAVE_JOBS = "/usr/local/lib/tailrack/save-jobs"
# Seconds that tailrack-shutdown takes at most.
_LIMIT = 25
_GOOGLE = "gcp"  # the provider, in the words of the spot notice
# Google switches a machine off 30 s after it asks it to shut down.
_GOOGLE_SECONDS = 12
_CONFIGURATION = f"{PRIVATE}/slurm-recreate"
_DELETE_LIMIT = 60


@dataclass(frozen=True)
class ComputeValues:
    """The values of this node.

    node_features, node_gres   Slurm features and gres (`site-x,pool-a`, `gpu:h200:8` or empty)
    node_registered_mb         memory that the node registers, a little less than it has
    node_reserved_mb           part of it that jobs cannot use
    head_address               tailnet address of slurmctld
    slurm_job_limit_seconds    seconds to wait for jobs to end
    slurm_save_seconds, slurm_save_jobs, node_spot   see slurmd.py
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
    def registration(self) -> node_state.Registration:
        return node_state.Registration(frozenset(self.node_features.split(",")), self.node_gres, self.node_reserved_mb)


def compute(step: Step, values: ComputeValues) -> None:
    """Register this node, and wait until the controller gives it jobs."""
    watchdog_changed = step.changed
    folders.set_foreign_slurm_aside()
    unit_changed = _install_units(step.host, values)
    # slurmctld reconfigures slurmd if slurm.conf begins to include this machine's own file, not if that file changes.
    gpus = files.lines(OWN_GRES_CONF)[1:]
    own_keys = "\n".join([*files.lines(OWN_SLURM_CONF), *files.lines(OWN_CGROUP_CONF), *gpus])
    keys_changed = files.read(_KEYS_IN_USE) not in (None, f"{own_keys}\n")
    node = slurm.node(step.host) if systemd.is_active("slurmd") else None
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
    usability = node_state.Usability(step.host, values.head_address)
    usability.require()
    files.remove(_NEW_BOOT)
    if files.exists(folders.INSTALLED):
        unreserve_node(step.host)
    end_turn(step.host)
    if node_state.wait_for_place(step.host, values.head_address):
        usability.require()
    files.write(_KEYS_IN_USE, own_keys)
    # If no node confines jobs, none has the feature.
    node_state.set_live_features(
        step.host, "slurm", [UNCONFINED] if values.head_cgroups and not values.node_confined else []
    )
    _start_helpers(restart=watchdog_changed)
    step.result("slurm_version", run("slurmd", "-V").split()[1])


def _registered_cpus() -> int | None:
    """Return the CPUs of a container that may use fewer than its machine has; None elsewhere: slurmd counts them."""
    cpus = cpu_limit()
    return cpus if cpus and cpus < (os.cpu_count() or 1) else None


def registers_otherwise(node: Node, values: ComputeValues) -> bool:
    """Return whether a node must be created again, because only that changes these parts of it."""
    present = node_state.registration_of(node)
    present = replace(present, features=present.features - node_state.live_features())
    return present != values.registration or _has_other_size(node, values)


def _has_other_size(node: Node, values: ComputeValues) -> bool:
    """Return whether a container's limit has changed: slurmctld drains a node that registers less than before.

    A few MB less, after a kernel update, are no reason.
    """
    cpus = _registered_cpus()
    return bool(cpus and node.cpus and node.cpus != cpus) or values.node_registered_mb < node.memory_mb * 9 // 10


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


def _start_slurmd(host: str) -> Node | None:
    systemd.restart_later("slurmd")
    return wait_for(lambda: slurm.node(host), node_state.REGISTER_LIMIT)


def _start_helpers(*, restart: bool) -> None:
    if restart:
        run("systemctl", "start", "tailrack-shutdown")
        run("systemctl", "restart", "tailrack-slurmd-watchdog")
    else:
        run("systemctl", "start", "tailrack-shutdown", "tailrack-slurmd-watchdog")


def seconds_to_save(save_seconds: int, spot: str) -> int:
    """Return how long a machine's shutdown waits for jobs that save.

    save_seconds   the config's; 0 without any
    spot           the provider that may take the machine back; empty if none does
    """
    return min(save_seconds or _GOOGLE_SECONDS, _GOOGLE_SECONDS) if spot == _GOOGLE else save_seconds


def requeue_jobs_at_shutdown(host: str, seconds: int = 0, program: str = "") -> None:
    """Write the units. The caller reloads tailrack-shutdown.service.

    seconds   how long to wait for jobs that save (jobs.py); 0 for no wait
    program   the program that does so
    """
    if seconds:
        files.write(SAVE_JOBS, program, 0o755)
    else:
        files.remove(SAVE_JOBS)
    save = f"ExecStop=-{SAVE_JOBS} {seconds}\n" if seconds else ""
    files.write(f"{UNITS}/tailrack-shutdown.service", _SHUTDOWN_UNIT.format(save=save, limit=_LIMIT + seconds))
    scopes = ("slurmstepd.scope", f"{host}_slurmstepd.scope")
    # An active scope must read its files again. Naming it in a query would load it.
    if files.write_all([File(f"{UNITS}/{scope}.d/tailrack.conf", _SCOPE) for scope in scopes]) and is_active("slurmd"):
        run("systemctl", "daemon-reload")


def recreate_node(host: str, node: Node, job_limit: float) -> None:
    """Recreate this node after its jobs end. Raises Failure."""
    reason = node.reason if node_state.drained_by_person(node) else ""
    # Do not set a health drain here: the health check would take it for a person's and never end it. It sets its own
    # again.
    health = bool(reason) and node_state.drained_by_health()
    if health:
        reason = ""
    note("registering again with other features, gres or size")
    if not clear_jobs(host, reason or "tailrack: registers anew", job_limit):
        raise Failure("jobs on this node do not end and cannot be requeued", f"see 'squeue -w {host}'")
    _delete_node(host)
    if not wait_until(lambda: slurm.node(host) is not None, node_state.REGISTER_LIMIT):
        return
    if health and not attempt("tailrack-nhc").ok:
        note("the health check (tailrack-nhc) failed; it runs again in two minutes")
    if reason:
        slurm.scontrol("update", f"nodename={host}", "state=drain", f"reason={reason}")


def _delete_node(host: str) -> None:
    """Delete the node and start slurmd again. A running slurmd would register the node again, so stop it before."""
    folders.copy_configuration(_CONFIGURATION)
    try:
        services.stop("slurmd")
        environment = folders.with_configuration(_CONFIGURATION)
        deleted = wait_until(lambda: slurm.delete(nodename=host, environment=environment), _DELETE_LIMIT)
        services.restart_later("slurmd")
    finally:
        files.remove_folder(_CONFIGURATION)
    if not deleted:
        raise Failure(
            f"slurmctld does not delete the old node {host}", f"see 'scontrol show node {host}' on the head node"
        )
