#!/bin/bash
# Drain nodes that have another munge key than slurmctld. They reject jobs, and a job that cannot be requeued would be
# lost. Part of a program too, so it uses nothing of base.sh.

# The node's own steps also recognize this reason (OUR_DRAINS in slurm/node_state.py).
MUNGE_DRAIN='tailrack: has another munge key'

# Drain the nodes on stdin that would get jobs. A node that is already out keeps its reason. Fail if slurmctld rejects
# it.
drain_nodes() {
    local node state nodes
    nodes=$(timeout 20 sinfo -h -a -N -o '%N %T' | sort -u) || return 1
    while read -r node; do
        state=$(awk -v node="$node" '$1 == node { print $2; exit }' <<<"$nodes")
        case $state in '' | drain* | down* | fail*) continue ;; esac
        timeout 20 scontrol update "nodename=$node" state=drain reason="$MUNGE_DRAIN" || return 1
    done
}
