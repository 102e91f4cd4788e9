"""Folders of slurmctld's files on the head node.

The cluster's files come from the head node's step. Lines of each node and pool are in separate files, so that one that
joins or leaves changes no other's.
"""

from __future__ import annotations

from components.node.step.step import STATE_DIR

# Where slurmctld reads its files. It serves them to all nodes (configless).
CONF = "/etc/slurm"
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

# The partition of all nodes that measurements use if a site is not in partition `all`. No site can have this name.
MEASURE_PARTITION = "tailrack_measure"

# If the cluster has pods: a part of the submit script, and programs that slurmctld runs before and after each job (role
# pod_staging).
POD_JOBS = "/usr/local/lib/tailrack/pod-jobs.lua"
STAGE_IN = "/usr/local/lib/tailrack/pod-stage-in"
STAGE_OUT = "/usr/local/lib/tailrack/pod-stage-out"
# The feature of nodes that are pods.
POD = "pod"
# On a pod: the program that ends jobs of an earlier start (lost_jobs.py).
LOST_JOBS = "/usr/local/lib/tailrack/pod-lost-jobs"
