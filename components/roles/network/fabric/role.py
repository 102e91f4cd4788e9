"""The fabric of a site: found on each machine, proven between two nodes, used by jobs.

The head node starts the proof, because it alone knows all members. A proof of all pairs would need N² transfers, and a
job for it would wait for idle nodes. Jobs learn their network by TaskProlog: Slurm's Lua scripts do not know the nodes,
`Prolog` sets no variables, and files of NCCL and Open MPI do not know the job. Since 25.11 the controller can
distribute TaskProlog; before, it is a file on each node. If it is missing or fails, the task ends, so tasks fail
between the step on the head node that first adds it and the node's own step. Asking slurmctld in each task would
overload it, so groups are comments in topology.conf; a node that missed a reconfiguration has the old ones until slurmd
restarts. NCCL alone used two interfaces at once (1.5 GB/s; one gave 3.9).
"""

from components.node.minute import Task
from components.roles.cluster_settings import ClusterSettings
from components.roles.network.fabric.facts import neighbours, networks, proven
from components.roles.network.fabric.host import PROGRAM
from components.roles.network.fabric.networks import PORT
from components.roles.program import launcher
from components.roles.role import File, Role, SlurmKey, template

TASK_PROLOG = "/usr/local/lib/tailrack/task-prolog"

# The head node retries proofs that failed because no node answered.
AGAIN = "/usr/local/sbin/tailrack-fabric-again"
AGAIN_TASK = Task("fabric-again", (AGAIN,), seconds=300)


def role(_settings: ClusterSettings) -> Role:
    """Return the role. Every machine has the program before it registers, because the head node then runs a proof."""
    return Role(
        "fabric",
        after=("tailnet", "munge"),
        packages={"join": ("python3", "iproute2")},
        files={
            "join": (
                File(PROGRAM, launcher("fabric"), "0755"),
                File(TASK_PROLOG, template("fabric", "task-prolog"), "0755"),
                File("/etc/enroot/mounts.d/60-tailrack.fstab", template("fabric", "enroot.fstab")),
                File("/etc/enroot/hooks.d/60-tailrack.sh", template("fabric", "enroot-hook"), "0755"),
            ),
            "head": (File(AGAIN, launcher("fabric-again"), "0755"),),
        },
        tasks={"head": (AGAIN_TASK,)},
        facts={
            "join": {"fabric": networks},
            "head": {"fabric": proven},
            "register": {"fabric": proven},
            "pod_join": {"fabric": networks},
            "pod_register": {"neighbours": neighbours},
        },
        slurm_conf={
            "TaskProlog": SlurmKey(
                TASK_PROLOG,
                "jobs would not know the network for NCCL and MPI, and could use a wrong one or none",
            )
        },
        ports=(str(PORT),),
        serves=(str(PORT),),
    )
