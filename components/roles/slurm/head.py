"""Run the controller with the cluster's configuration."""

from __future__ import annotations

import re
from dataclasses import dataclass

from components.node import files, systemd
from components.node.failure import Failure
from components.node.files import File
from components.node.folders import give, read_theirs
from components.node.log import note
from components.node.run import run, succeeds
from components.node.step.kept import keep
from components.node.step.step import STATE_DIR, Step
from components.node.waiting import wait_until
from components.roles.firewall.ports import HeldPorts, hold_ports
from components.roles.slurm import controller
from components.roles.slurm.folder import CONTROLLER_STATE, give_slurm_state
from components.roles.slurm.foreign_files import set_foreign_slurm_aside
from components.roles.slurm.jobs import clear_jobs
from components.roles.slurm.node_files import NodeFiles, node_folder, write_node
from components.roles.slurm.offer import offer
from components.roles.slurm.paths import BASE, JOB_LIMIT, POOLS

_OFFERED = f"{STATE_DIR}/slurm/offered"
_UNITS = ("slurmctld.service", "tailrack-slurmctld-watchdog.service", "tailrack-slurm-room.service")
_SLURMD_WATCHDOG = "tailrack-slurmd-watchdog"


@dataclass(frozen=True)
class HeadValues(HeldPorts, NodeFiles):
    """The cluster's files, and the head node.

    head_computes                             whether it runs jobs too; node_* then describe it
    slurm_job_limit_seconds                   see jobs.py
    slurm_prolog, slurm_epilog                programs that the controller sends to nodes when slurm.conf names them
    head_expire_plan, head_expire_values      plan and values of the program that removes nodes that their provider took
                                              back, as JSON
    slurm_expire_command                      text of that program
    """

    head_computes: bool
    slurm_job_limit_seconds: int
    slurm_slurm_conf: str
    slurm_gres_conf: str
    slurm_topology_conf: str
    slurm_cgroup_conf: str
    slurm_mpi_conf: str
    slurm_job_submit_lua: str
    slurm_prolog: str
    slurm_epilog: str
    head_expire_plan: str
    head_expire_values: str
    slurm_expire_command: str

    @property
    def cluster_files(self) -> dict[str, str]:
        """Return the cluster's files by name.

        slurm.conf names the last two without a path, so slurmctld sends them to all nodes (src/common/fetch_config.c,
        23.11 and newer). A node without them would drain at its first job.
        """
        return {
            "slurm.conf": self.slurm_slurm_conf,
            "gres.conf": self.slurm_gres_conf,
            "topology.conf": self.slurm_topology_conf,
            "cgroup.conf": self.slurm_cgroup_conf,
            "mpi.conf": self.slurm_mpi_conf,
            "job_submit.lua": self.slurm_job_submit_lua,
            "tailrack-prolog": self.slurm_prolog,
            "tailrack-epilog": self.slurm_epilog,
        }


def head(step: Step, values: HeadValues) -> None:
    """Start slurmctld with the files, or make it read them again."""
    refuse_another_cluster_name(step, values.slurm_slurm_conf)
    _refuse_partitions_of_pools(values.slurm_slurm_conf)
    # Installing a built release may have created Slurm's account after the ports were last held.
    hold_ports(step, values)
    set_foreign_slurm_aside()
    give_slurm_state()
    give("slurm", 0o755, "/var/log/slurm")
    files.remove_folder(_OFFERED)
    files.write_all([File(f"{_OFFERED}/{name}", text) for name, text in values.cluster_files.items()])
    files.write(JOB_LIMIT, str(values.slurm_job_limit_seconds))
    if values.head_computes:
        write_node(values)
    else:
        _remove_slurmd(step, values.slurm_job_limit_seconds)
    systemd.keep_running("slurmctld.service")
    systemd.reload(*_UNITS)
    systemd.enable(*_UNITS)
    run("systemctl", "restart", *(unit.removesuffix(".service") for unit in _UNITS[1:]))
    if reason := offer(_OFFERED):
        raise Failure(reason, f"correct tailrack:slurm.settings; see 'journalctl -u slurmctld' on {step.host}")
    if not values.head_computes and not wait_until(lambda: controller.node_deleted(step.host), 60):
        raise Failure(
            "slurmctld does not delete the head node's own node", f"see 'scontrol show node {step.host}' on {step.host}"
        )
    # From now on, members' steps add to these files.
    files.remove_folder(BASE)
    files.rename(_OFFERED, BASE)
    keep("expire", values.head_expire_plan, values.head_expire_values, values.slurm_expire_command)
    step.result("slurm_version", run("slurmctld", "-V").split()[1])


def refuse_another_cluster_name(step: Step, slurm_conf: str) -> None:
    """Raise Failure if slurmctld's state is that of a cluster with another name.

    slurmctld rejects it, and reports only "Unspecified error".
    """
    # The file contains the name and, since 24.11, a number.
    saved = (read_theirs(f"{CONTROLLER_STATE}/clustername") or "").partition("\n")[0]
    old_name = "".join(character for character in saved if " " <= character <= "~")[:200].partition("|")[0]
    names = re.findall(r"^ClusterName=(.*)", slurm_conf, re.MULTILINE)
    if old_name and old_name not in names:
        raise Failure(
            f"the cluster was created as '{old_name}' and the config names it '{''.join(names)}'; slurmctld would "
            "reject its saved state",
            f"set tailrack:cluster.name back to {old_name}, or discard all jobs: rm -r {CONTROLLER_STATE} on "
            f"{step.host}",
        )


def _refuse_partitions_of_pools(slurm_conf: str) -> None:
    """Raise Failure if the config now uses the name of a partition that a pool added."""
    names = set(re.findall(r"^PartitionName=([^ ]*) ", slurm_conf, re.MULTILINE))
    for pool, part in files.read_parts(POOLS, ["slurm.conf"]).items():
        for name in re.findall(r"^PartitionName=([^ ]*) ", part.get("slurm.conf", ""), re.MULTILINE):
            if name in names:
                raise Failure(
                    f"partition {name} belongs to the pool {pool}",
                    "give the cluster's site or partition another name, or remove that pool first ('make down' of its "
                    "stack)",
                )


def _remove_slurmd(step: Step, limit: int) -> None:
    """Remove any slurmd from a head node that runs no jobs, even one from an image or a package.

    Root of any machine with Slurm's key could use it to become root here.
    """
    if controller.has_node(step.host) and not clear_jobs(step.host, "tailrack: runs no jobs any more", limit):
        note("some jobs did not end and could not be requeued; they continue without slurmd until they end")
    if files.exists(f"{systemd.UNITS}/{_SLURMD_WATCHDOG}.service"):
        run("systemctl", "disable", "-q", "--now", _SLURMD_WATCHDOG)
    if succeeds("systemctl", "cat", "slurmd"):
        run("systemctl", "disable", "-q", "--now", "slurmd")
    for name in ("tailrack", "tailrack-restart"):
        files.remove(f"{systemd.UNITS}/slurmd.service.d/{name}.conf")
    files.remove_folder(node_folder(step.host))
