"""Slurm on a machine: check its release, write the machine's own files, run slurmctld, and remove it all."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from components.node import files, folders, systemd
from components.node.failure import Failure, do_each
from components.node.files import File
from components.node.folders import give, read_theirs
from components.node.log import STATE_DIR, note
from components.node.packages import refresh_lists_now, versions_of
from components.node.run import attempt, run, succeeds
from components.node.step.main import keep
from components.node.step.step import Step
from components.node.systemd import UNITS, is_active, retire, retire_daemon
from components.node.waiting import wait_until
from components.roles.base.foreign_cluster.host import put_back
from components.roles.network.firewall.ports import HeldPorts, hold_ports
from components.roles.slurm.slurm import controller
from components.roles.slurm.slurm.controller import offer
from components.roles.slurm.slurm.folders import (
    BASE,
    CONF,
    CONF_FILES,
    CONTROLLER_STATE,
    DBD_CONF,
    FROM_CONTROLLER,
    INSTALLED,
    JOB_LIMIT,
    LINK,
    POOLS,
    SHARE,
    foreign_slurm_files,
    give_slurm_state,
    is_foreign,
    leave_slurm_folder,
    set_foreign_slurm_aside,
    take_slurm_folder,
    was_controller,
)
from components.roles.slurm.slurm.nodes import NodeFiles, node_folder, write_node
from components.roles.slurm.slurm.profiles import OWN_CGROUP_CONF, OWN_GRES_CONF, OWN_SLURM_CONF
from components.roles.slurm.slurm.versions import ADVISED, NEEDED, is_older, one_release_remedy, release_of, upstream_of
from components.slurm_commands import slurm

_SLURM, _MPI = "slurmd", "openmpi-bin"
_PMIX = ("libpmix2t64", "libpmix2")
_CONTROLLERS = {"memory", "cpuset"}
# slurmctld drains a node with less than 90 % of its configured memory (node_reg_mem_percent).
_LEAST_MEMORY = 0.92
_WRITTEN = "# Written by tailrack."
_OFFERED = f"{STATE_DIR}/slurm/offered"
_UNITS = ("slurmctld.service", "tailrack-slurmctld-watchdog.service", "tailrack-slurm-room.service")
_SLURMD_WATCHDOG = "tailrack-slurmd-watchdog"
_SCOPE = "slurmstepd.scope.d"


def check(step: Step, slurm_release: str) -> None:
    """Report the version, the MPI library and whether cgroups work, and files of another cluster.

    slurm_release   the config's release, empty for the distribution's
    """
    step.foreign += foreign_configurations()
    if not slurm_release and files.exists(INSTALLED):
        raise Failure(
            "this machine has a Slurm release that the config no longer names "
            f"({(files.read(INSTALLED) or '').strip()})",
            "set tailrack:slurm.release again, because the distribution's Slurm is no upgrade of it; or take "
            f"{step.host} out of the cluster, run 'apt-get purge slurm-smd*' there, and add it again",
        )
    versions = versions_of((_SLURM, _MPI), _PMIX)
    if (_MPI if slurm_release else _SLURM) not in versions:
        refresh_lists_now(step.host)
        versions = versions_of((_SLURM, _MPI), _PMIX)
    version = slurm_release or versions.get(_SLURM)
    if not version:
        raise Failure(
            "no package source of this machine has slurmd",
            f"add Debian's or Ubuntu's (universe) package source, or {one_release_remedy(ADVISED)}",
        )
    step.result("cgroups", _cgroups_delegated())
    step.result("mpi", _mpi(versions))
    step.result("slurm_version", version)


def foreign_configurations() -> Iterator[str]:
    """Yield files of another cluster, with its name if they have it."""
    for path in (*foreign_slurm_files(), *filter(is_foreign, (DBD_CONF,))):
        name = re.search(r"^\s*ClusterName=(\S+)", files.read(path) or "", re.MULTILINE | re.IGNORECASE)
        yield f"{path} of cluster {name[1]}" if name else path


def _mpi(versions: Mapping[str, str]) -> str:
    """Return the launch library of MPI jobs, such as 5-pmix5: the major versions of Open MPI and PMIx.

    Slurm names its PMIx plugins by that number, and srun asks all nodes of a job for its own. Return an empty text if
    no source has Open MPI.
    """
    mpi = _major(versions.get(_MPI, ""))
    pmix = next(filter(None, (_major(versions.get(name, "")) for name in _PMIX)), "")
    return f"{mpi}-pmix{pmix}" if mpi and pmix else mpi


def _major(version: str) -> str:
    major = version.partition(":")[2] or version
    major = major.partition(".")[0]
    return major if re.fullmatch(r"[1-9][0-9]?", major) else ""


def _cgroups_delegated() -> bool:
    """Return whether systemd's own cgroup has the controllers that Slurm needs.

    Slurm uses the unified hierarchy only: slurmd exits if others are mounted ("Hybrid mode is not supported").
    """
    try:
        own = Path(files.on_disk("/proc/1/cgroup")).read_text(encoding="utf-8").partition("\n")[0]
        cgroup = own.removeprefix("0::").removesuffix("/init.scope")
        controllers = Path(files.on_disk(f"/sys/fs/cgroup{cgroup}/cgroup.controllers")).read_text(encoding="utf-8")
    except OSError:
        return False
    return own.startswith("0::/") and set(controllers.split()) >= _CONTROLLERS


def check_head(step: Step) -> None:
    """Check the version that host.py has reported."""
    release = release_of(step.results.get("slurm_version", ""))
    if release and is_older(release, NEEDED):
        raise Failure(
            f"Slurm {release} is too old: dynamic nodes need {NEEDED} or newer",
            f"use a newer image for {step.host} (Debian 13, Ubuntu 24.04), or {one_release_remedy(ADVISED)}",
        )


@dataclass(frozen=True)
class Controller:
    """The cluster's controller.

    head_slurm_version   version that the head node will run
    head_slurm_oldest    oldest release of nodes that its srun can start jobs on
    head_cgroups         whether the head node's Slurm confines jobs with cgroups
    slurm_needs_cgroups  part of the config that needs cgroups on every machine, empty if nothing does
    node_promised_cpus, node_promised_mb   of a placeholder of an elastic pool, as slurmctld expects it; else 0
    """

    head_slurm_version: str
    head_slurm_oldest: str
    head_cgroups: bool
    slurm_needs_cgroups: str
    node_promised_cpus: int
    node_promised_mb: int


def check_node(step: Step, values: Controller) -> None:
    """Check the version and the cgroups that host.py has reported."""
    _check_promise(step, values)
    version = step.results.get("slurm_version")
    if not version:
        return
    release, controller, oldest = release_of(version), release_of(values.head_slurm_version), values.head_slurm_oldest
    newer_image = f"use a newer image for {step.host}, or {one_release_remedy(upstream_of(values.head_slurm_version))}"
    if is_older(controller, release):
        raise Failure(
            f"Slurm {release} is newer than the controller's {controller}; the controller must be the newest",
            f"use an image with Slurm {controller} or older for {step.host}, or "
            f"{one_release_remedy(upstream_of(version))}",
        )
    if is_older(release, NEEDED):
        raise Failure(f"Slurm {release} is too old: dynamic nodes need {NEEDED} or newer", newer_image)
    if oldest == controller and is_older(release, controller):
        raise Failure(
            f"Slurm {release} is older than the controller's {controller}, whose srun reaches only nodes of its "
            "own release",
            newer_image,
        )
    if is_older(release, oldest):
        raise Failure(
            f"Slurm {release} is too old for the controller's {controller}, which accepts {oldest} and newer",
            newer_image,
        )
    if values.head_cgroups and values.slurm_needs_cgroups and not step.results["cgroups"]:
        raise Failure(
            f"{values.slurm_needs_cgroups}, but systemd has no memory controller on this machine",
            f"boot {step.host} with cgroup v2, or remove that key, or set tailrack:slurm.cgroups to false for the "
            "whole cluster",
        )


def _check_promise(step: Step, values: Controller) -> None:
    """Raise Failure if a machine has less than its placeholder: Slurm would drain it at once."""
    cpus, memory_mb = step.results.get("cpus") or 0, step.results.get("memory_mb") or 0
    remedy = "write what such a machine has in tailrack:elastic of the pool, or rent a larger kind, and run its up"
    if cpus < values.node_promised_cpus:
        raise Failure(f"this machine has {cpus} CPUs, and tailrack:elastic.cpus is {values.node_promised_cpus}", remedy)
    # A kernel reserves a part of the memory that the provider names.
    if memory_mb < values.node_promised_mb * _LEAST_MEMORY:
        raise Failure(
            f"this machine has {memory_mb / 1024:.1f} GiB of memory, and tailrack:elastic.memory_gb is "
            f"{values.node_promised_mb / 1024:g}",
            remedy,
        )


def pod_check(step: Step) -> None:
    """Report the version, the MPI library and whether cgroups work, and files of another cluster."""
    check(step, "")


def machine(step: Step, node_gres_conf: str, node_slurm_keys: str, node_cgroup_keys: str) -> None:
    """Write the files."""
    texts = {
        OWN_GRES_CONF: node_gres_conf,
        OWN_SLURM_CONF: node_slurm_keys,
        OWN_CGROUP_CONF: node_cgroup_keys,
    }
    files.write_all([File(path, f"{_WRITTEN}\n{text}") for path, text in texts.items()])


@dataclass(frozen=True)
class HeadValues(HeldPorts, NodeFiles):
    """The cluster's files, and the head node.

    head_computes                             whether it runs jobs too; node_* then describe it
    slurm_job_limit_seconds                   see jobs.py
    slurm_prolog, slurm_epilog                programs that the controller sends to nodes when slurm.conf names them
    head_expire_plan, head_expire_values      plan and values of the program that removes nodes that their provider took
                                              back, as JSON
    """

    head_computes: bool
    share_path: str
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
    files.write(SHARE, values.share_path)
    if values.head_computes:
        write_node(values)
    else:
        remove_slurmd(step, values.slurm_job_limit_seconds)
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
    keep("expire", values.head_expire_plan, values.head_expire_values)
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


def remove_slurmd(step: Step, limit: int) -> None:
    """Remove any slurmd from a machine that runs no jobs, even one from an image or a package.

    Root of any machine with Slurm's key could use it to become root here.
    """
    from components.roles.slurm.slurm.jobs import clear_jobs

    if slurm.has_node(step.host) and not clear_jobs(step.host, "tailrack: runs no jobs any more", limit):
        note("some jobs did not end and could not be requeued; they continue without slurmd until they end")
    if files.exists(f"{systemd.UNITS}/{_SLURMD_WATCHDOG}.service"):
        run("systemctl", "disable", "-q", "--now", _SLURMD_WATCHDOG)
    if succeeds("systemctl", "cat", "slurmd"):
        run("systemctl", "disable", "-q", "--now", "slurmd")
    for name in ("tailrack", "tailrack-restart"):
        files.remove(f"{systemd.UNITS}/slurmd.service.d/{name}.conf")
    files.remove_folder(node_folder(step.host))


def leave(step: Step) -> None:
    """Undo the work of all phases. A failing part does not end the others."""
    from components.roles.access.users.host import end_sessions

    # User programs would keep the share from being unmounted.
    do_each(_retire, end_steps, end_sessions, _forget_files, _forget_state, leave_slurm_folder)


def _retire() -> None:
    programs = ("slurmd-watchdog", "slurmctld-watchdog", "slurm-room", "shutdown")
    retire(*(f"tailrack-{name}.service" for name in programs))
    retire_daemon("slurmd")
    retire_daemon("slurmctld")


def end_steps() -> None:
    """End the remains of jobs. The process that keeps their scope alive ends with the scope."""
    if not files.exists(f"{UNITS}/slurmd.service.d/tailrack.conf"):
        return
    for name in files.names_in(UNITS):
        scope = name.removesuffix(".d")
        # The scope may end on its own meanwhile.
        if name.endswith(_SCOPE) and is_active(scope):
            attempt("systemctl", "stop", scope)
    # Without cgroups no scope contains them.
    attempt("pkill", "-KILL", "-x", "slurmstepd")
    files.remove_folder("/var/spool/slurmd")


def _forget_files() -> None:
    if files.exists(LINK):
        files.remove(FROM_CONTROLLER)
    for name in (*CONF_FILES, "tailrack-prolog", "tailrack-epilog"):
        if "Written by tailrack." in (files.read(f"{CONF}/{name}") or ""):
            files.remove(f"{CONF}/{name}")
    put_back(*(f"{CONF}/{name}" for name in CONF_FILES))


def _forget_state() -> None:
    if was_controller():
        take_slurm_folder()
        folders.empty_folder(CONTROLLER_STATE)


_ANSWER_SECONDS = 60


def login(step: Step, slurm_job_limit_seconds: int) -> None:
    """Link the files, and wait for an answer of slurmctld. A slurmd from earlier ends."""
    set_foreign_slurm_aside()
    remove_slurmd(step, slurm_job_limit_seconds)
    run("systemd-tmpfiles", "--create", LINK)
    if not wait_until(controller.answers, _ANSWER_SECONDS):
        raise Failure("slurmctld does not answer the commands of this machine", f"see 'scontrol ping' on {step.host}")
