#!/bin/bash
# uses: slurm/files slurm/fragment slurm/jobs slurm_release/wait_for_packages
# What slurmctld's files say of a node, and how the controller sees it off.
#
# NODE_NAME                 and what fragment.sh reads
# SLURM_JOB_LIMIT_SECONDS   see jobs.sh

slurm_register() {
    # Written before the lock is waited for: whoever holds it takes this node's files along.
    write_slurm_node
    take_lock
    # Its place in the topology is read when it is there: by a reconfiguration that its own step asks for.
    local taken=(slurm.conf gres.conf)
    if node_known; then taken+=(topology.conf); fi
    offer_slurm_files "$SLURM_BASE" "${taken[@]}" && return
    rm -rf "${SLURM_NODES:?}/$NODE_NAME"
    fail "$REFUSED" "see what it says above; 'journalctl -u slurmctld' on $HOST_NAME says more"
}

node_known() { scontrol show node "$NODE_NAME" >/dev/null 2>&1; }
node_deleted() { ! node_known || scontrol delete "nodename=$NODE_NAME"; }

see_node_off() {
    local limit=$SLURM_JOB_LIMIT_SECONDS reason="tailrack: leaves the cluster"
    if scontrol show node "$NODE_NAME" | grep -E 'State=[A-Z+]*(DOWN|NOT_RESPONDING)|State=.*\*' >/dev/null; then
        note "$NODE_NAME does not answer: not waiting for its jobs"
        limit=0
    fi
    see_jobs_off "$NODE_NAME" "$reason" "$limit" || scontrol update "nodename=$NODE_NAME" state=down reason="$reason"
}

slurm_register_release() {
    # A controller that is away knows no node at all, which must not pass for "gone already".
    wait_until 60 controller_answers || fail "slurmctld does not answer" "see 'journalctl -u slurmctld' on $HOST_NAME"
    if node_known; then see_node_off; fi
    # Before its step waits for the lock: the first who has it has slurmctld take all who leave. Whose the node is stays.
    rm -f "${SLURM_NODES:?}/$NODE_NAME"/{site,fabric,memory,slurm.conf,job_submit.lua}
}

slurm_register_forget() {
    # One that is reserved cannot be deleted.
    waits_no_longer "$NODE_NAME"
    wait_until 60 node_deleted || fail "Slurm keeps node $NODE_NAME" "see 'scontrol show node $NODE_NAME' on $HOST_NAME"
    rm -rf "${SLURM_NODES:?}/$NODE_NAME"
    # A head node that was never finished has no files to take this node's out of.
    [ ! -d "$SLURM_BASE" ] || offer_slurm_files "$SLURM_BASE" || fail "$REFUSED" "'journalctl -u slurmctld' on $HOST_NAME says more"
}
