#!/bin/bash
# uses: slurm/files slurm/fragment slurm/jobs slurm_release/wait_for_packages
# Add a node to slurmctld's files, and remove it from the controller.
#
# NODE_NAME                 and the variables that fragment.sh reads
# SLURM_JOB_LIMIT_SECONDS   see jobs.sh

slurm_register() {
    # Before the lock, so that the step that has it takes this node's files along.
    write_slurm_node
    take_lock
    # slurmctld places a node that already exists: its own step asks for the reconfiguration.
    local names=(slurm.conf gres.conf)
    if node_registered; then names+=(topology.conf); fi
    offer_slurm_files "$SLURM_BASE" "${names[@]}" && return
    rm -rf "${SLURM_NODES:?}/$NODE_NAME"
    fail "$REFUSED" "see its errors above and 'journalctl -u slurmctld' on $HOST_NAME"
}

node_registered() { scontrol show node "$NODE_NAME" >/dev/null 2>&1; }
node_deleted() { ! node_registered || scontrol delete "nodename=$NODE_NAME"; }

drain_leaving_node() {
    local limit=$SLURM_JOB_LIMIT_SECONDS reason="tailrack: leaves the cluster"
    if scontrol show node "$NODE_NAME" | grep -E 'State=[A-Z+]*(DOWN|NOT_RESPONDING)|State=.*\*' >/dev/null; then
        note "not waiting for jobs on $NODE_NAME, because it does not answer"
        limit=0
    fi
    clear_jobs "$NODE_NAME" "$reason" "$limit" || scontrol update "nodename=$NODE_NAME" state=down reason="$reason"
}

slurm_register_release() {
    # Without a controller every node looks deleted.
    wait_until 60 controller_answers || fail "slurmctld does not answer" "see 'journalctl -u slurmctld' on $HOST_NAME"
    if node_registered; then drain_leaving_node; fi
    # Before this step waits for the lock, so that one reconfiguration removes all leaving nodes. The owner file stays.
    rm -f "${SLURM_NODES:?}/$NODE_NAME"/{site,fabric,memory,slurm.conf,job_submit.lua}
}

slurm_register_forget() {
    # Slurm does not delete a node in a reservation.
    unreserve_node "$NODE_NAME"
    wait_until 60 node_deleted || fail "slurmctld does not delete node $NODE_NAME" "see 'scontrol show node $NODE_NAME' on $HOST_NAME"
    rm -rf "${SLURM_NODES:?}/$NODE_NAME"
    # An unfinished head node has no files yet.
    [ ! -d "$SLURM_BASE" ] || offer_slurm_files "$SLURM_BASE" || fail "$REFUSED" "see 'journalctl -u slurmctld' on $HOST_NAME"
}
