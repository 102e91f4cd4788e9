#!/bin/bash
# Nodes that have another munge key than slurmctld run no jobs: one that is sent there is refused, and one that may not go back to
# the queue is lost. Part of a program of its own too, so it uses nothing of base.sh.

# A step of the node's own knows it too (OUR_DRAINS of slurm/compute.sh).
MUNGE_DRAIN='tailrack: has another munge key'

# Drain those nodes of stdin that would take jobs. One that is out already stays out for that reason. Fails where slurmctld does not
# take it.
drain_for_the_key() {
    local node state nodes
    nodes=$(timeout 20 sinfo -h -a -N -o '%N %T' | sort -u) || return 1
    while read -r node; do
        state=$(awk -v node="$node" '$1 == node { print $2; exit }' <<<"$nodes")
        case $state in '' | drain* | down* | fail*) continue ;; esac
        timeout 20 scontrol update "nodename=$node" state=drain reason="$MUNGE_DRAIN" || return 1
    done
}

# Give jobs again to nodes that were drained here and are not among those of a file, one a line.
take_back_with_the_key() {
    local node state reason
    timeout 20 sinfo -h -a -N -o '%N %T %E' | sort -u | while read -r node state reason; do
        if [[ $state != drain* || $reason != "$MUNGE_DRAIN" ]] || grep -qsxF "$node" "$1"; then continue; fi
        timeout 20 scontrol update "nodename=$node" state=undrain || :
    done
}
