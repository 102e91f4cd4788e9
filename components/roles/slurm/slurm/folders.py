"""Folders and files of Slurm on a machine: slurmctld's, those of another cluster, and a copy of the commands' own.

The cluster's files come from the head node's step. Lines of each node and pool are in separate files, so that one that
joins or leaves changes no other's. Slurm's packages give the parent folder of its daemons' state to Slurm's account. On
a head node root owns it, so that the account cannot replace root's paths by links.
"""

from components.node import files
from components.node.folders import give, read_theirs, take
from components.node.log import STATE_DIR, note
from components.node.passwd import user_named
from components.node.run import attempt, run
from components.node.systemd import UNITS
from components.roles.base.foreign_cluster.host import set_aside

# Where slurmctld reads its files. It serves them to all nodes (configless).
CONF = "/etc/slurm"
DBD_CONF = f"{CONF}/slurmdbd.conf"
# The cluster's files that slurmctld last accepted.
BASE = f"{STATE_DIR}/slurm/base"
# The seconds that jobs may continue on a node that leaves. A removal in the same run has the limit of the run before.
JOB_LIMIT = f"{STATE_DIR}/slurm/job_limit"
# Parts of nodes: <node>/<file> contains lines for the file, <node>/site its switch, <node>/memory the memory per CPU
# of its jobs for each of its NodeSets, <node>/gpu_cpus the CPUs per GPU, <node>/owner its pool (empty for the
# cluster's stack).
NODES = f"{STATE_DIR}/slurm/nodes"
# Parts of pools: <pool>/slurm.conf contains the partitions of its sites, <pool>/nodes the names of its nodes. An
# elastic pool has placeholders too: <pool>/placeholders contains a line `node site` for each, <pool>/kept the names of
# those that Slurm must not suspend, and the other files are like a node's.
POOLS = f"{STATE_DIR}/slurm/pools"
# Parts of roles that the head node adds once it runs: <role>/<file> contains lines for the file.
SERVICES = f"{STATE_DIR}/slurm/services"
# All files that slurmctld last accepted. They come back when it rejects newer ones, so that the machine matches the
# stack's state and an interrupted step does not pass for done.
TAKEN = f"{STATE_DIR}/slurm/taken"
# The path of the share, where the accepted files are in PUBLISHED, for the commands of log-in nodes.
SHARE = f"{STATE_DIR}/slurm/share"
PUBLISHED = ".tailrack/slurm"
# On a log-in node: has the link from FROM_CONTROLLER to these files made at each boot.
LINK = "/etc/tmpfiles.d/tailrack-slurm.conf"
# The name of the package folder of the config's release, in one line.
INSTALLED = f"{STATE_DIR}/slurm-release"
# The partition of all nodes that measurements use if a site is not in partition `all`. No site can have this name.
MEASURE_PARTITION = "tailrack_measure"
# If the cluster has pods: a part of the submit script, and programs that slurmctld runs before and after each job (role
# pod_staging).
POD_JOBS = "/usr/local/lib/tailrack/pod-jobs.lua"
STAGE_IN = "/usr/local/lib/tailrack/pod-stage-in"
STAGE_OUT = "/usr/local/lib/tailrack/pod-stage-out"
# The feature of nodes that are pods.
POD = "pod"
# On a pod: the program that ends jobs of an earlier start (pod.py).
LOST_JOBS = "/usr/local/lib/tailrack/pod-lost-jobs"
SLURM_FOLDER = "/var/lib/slurm"
# slurmctld's state.
CONTROLLER_STATE = f"{SLURM_FOLDER}/slurmctld"
# Exists while slurmctld's state is a restored backup, which belongs to root even if a package changed its owner.
_RESTORED = f"{STATE_DIR}/slurm-restored"
FROM_CONTROLLER = "/run/slurm/conf"
CONF_FILES = ("slurm.conf", "gres.conf", "topology.conf", "cgroup.conf", "mpi.conf", "job_submit.lua")
_OURS = "Written by tailrack."
# The last report of `make elastic` on each pool: <pool>/status.json.
ELASTIC = f"{STATE_DIR}/elastic"
ELASTIC_STATUS = "status.json"


def take_slurm_folder() -> None:
    """Make root its owner."""
    take(SLURM_FOLDER)


def give_slurm_state() -> None:
    """Give slurmctld's account its state folder."""
    take_slurm_folder()
    if files.exists(_RESTORED) and files.is_folder(CONTROLLER_STATE):
        take(CONTROLLER_STATE, 0o700)
    give("slurm", 0o700, CONTROLLER_STATE)
    files.remove(_RESTORED)


def mark_restored() -> None:
    """Record that slurmctld's state is a restored backup."""
    files.write(_RESTORED, "")


def was_controller() -> bool:
    """Return whether this machine ran the cluster's slurmctld."""
    return files.exists(f"{UNITS}/slurmctld.service.d/tailrack.conf")


def leave_slurm_folder() -> None:
    """Give the parent folder back to Slurm's account, as the packages have it, once root is done there."""
    if was_controller() and files.is_folder(SLURM_FOLDER) and user_named("slurm"):
        files.make_folder(SLURM_FOLDER, 0o755, "slurm")


def copy_configuration(folder: str) -> None:
    """Copy the configuration of Slurm's commands, which slurmd deletes when it stops, into a new folder of root's."""
    source = FROM_CONTROLLER if files.exists(f"{FROM_CONTROLLER}/slurm.conf") else CONF
    files.remove_folder(folder)
    files.make_folder(folder, 0o700)
    run("cp", "-rLT", source, folder)


def with_configuration(folder: str) -> dict[str, str]:
    """Return the environment of commands that use a copy."""
    return {"SLURM_CONF": files.on_disk(f"{folder}/slurm.conf")}


def foreign_slurm_files() -> list[str]:
    """Return the paths of another cluster's files, with which Slurm's commands would contact its controller."""
    return [path for path in (f"{CONF}/{name}" for name in CONF_FILES) if is_foreign(path)]


def is_foreign(path: str) -> bool:
    """Return whether a file of /etc/slurm is another cluster's."""
    if _belongs_to_root():
        # A link, such as one to a share, is another cluster's.
        return files.exists(path) and _OURS not in (files.read(path) or "")
    text = read_theirs(path)
    return text is not None and _OURS not in text


def _belongs_to_root() -> bool:
    return files.owner_of(CONF) in ("", "root")


def set_files_aside(*paths: str) -> None:
    """Move files of /etc/slurm into the backup."""
    if not _belongs_to_root():
        take(CONF)
    for path in paths:
        set_aside(path)


def set_foreign_slurm_aside() -> None:
    """Stop Slurm's daemons, and move the foreign configuration and controller state into the backup."""
    paths = foreign_slurm_files()
    if not paths:
        return
    if not attempt("systemctl", "stop", "slurmd", "slurmctld").ok:
        note("at least one of Slurm's daemons is not installed")
    # If this cluster's controller has run here, the state is its own, even if the files were changed.
    if files.is_folder(SLURM_FOLDER) and not files.is_folder(f"{STATE_DIR}/slurm"):
        take_slurm_folder()
        if files.exists(CONTROLLER_STATE):
            set_aside(CONTROLLER_STATE)
    set_files_aside(*paths)


def placeholder_names(pool: str) -> list[str]:
    """Return the placeholders of a pool in the order of its config; none if it is not elastic."""
    return [line.split()[0] for line in files.lines(f"{POOLS}/{pool}/placeholders") if line]


def is_placeholder(node: str) -> bool:
    """Return whether a node is a placeholder of any pool."""
    pools = files.read_parts(POOLS, ["placeholders"]).values()
    return any(line.split()[:1] == [node] for part in pools for line in part.get("placeholders", "").splitlines())
