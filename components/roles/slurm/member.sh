#!/bin/bash
# uses: slurm/files slurm/fragment slurm/jobs
# What slurmctld's files say of a node, and how the controller sees it off.
#
# NODE_NAME                 and what fragment.sh reads
# SLURM_JOB_LIMIT_SECONDS   see jobs.sh

slurm_member() { write_slurm_node; }

node_known() { scontrol show node "$NODE_NAME" >/dev/null 2>&1; }
node_deleted() { ! node_known || scontrol delete "nodename=$NODE_NAME"; }

see_node_off() {
    local limit=$SLURM_JOB_LIMIT_SECONDS reason="tailrack: leaves the cluster"
    if scontrol show node "$NODE_NAME" | grep -Eq 'State=[A-Z+]*(DOWN|NOT_RESPONDING)|State=.*\*'; then
        note "$NODE_NAME does not answer: not waiting for its jobs"
        limit=0
    fi
    see_jobs_off "$NODE_NAME" "$reason" "$limit" || scontrol update "nodename=$NODE_NAME" state=down reason="$reason"
}

slurm_member_release() {
    # A controller that is away knows no node at all, which must not pass for "gone already".
    wait_until 60 controller_answers || fail "slurmctld does not answer" "see 'journalctl -u slurmctld' on $HOST_NAME"
    if node_known; then see_node_off; fi
}

slurm_member_forget() {
    wait_until 60 node_deleted || fail "Slurm keeps node $NODE_NAME" "see 'scontrol show node $NODE_NAME' on $HOST_NAME"
    rm -rf "${SLURM_NODES:?}/$NODE_NAME"
    rm -f "$SLURM_EXPECTED/$NODE_NAME"
    ask_for_reconfigure
}
