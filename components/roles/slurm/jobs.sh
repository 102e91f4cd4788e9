#!/bin/bash
# How jobs leave a node: they may end; after a limit they go back to the queue, and what cannot is cancelled.
#
# SLURM_JOB_LIMIT_SECONDS   how long a job may go on

idle() {
    local jobs
    jobs=$(squeue -h -w "$1" -o %A) && [ -z "$jobs" ]
}

# Interactive jobs and those submitted with --no-requeue have no way back into the queue. Their owners are told where
# they have a terminal, and are named in the log.
end_jobs() {
    local job owner state
    while read -r job owner state; do
        [ "$state" != COMPLETING ] || continue
        if scontrol requeue "$job"; then
            note "requeued job $job of $owner"
        else
            note "cancelling job $job of $owner, which cannot be requeued"
            scontrol notify "$job" "job $job is cancelled: node $1 is needed, and the job cannot be requeued" || :
            scancel "$job" || :
        fi
    done < <(squeue -h -w "$1" -o '%A %u %T' | sort -u)
}

# Drain a node for a reason; wait until it has no jobs, or the limit is over. Whether it is idle then.
see_jobs_off() {
    local node=$1 reason=$2 limit=$3
    scontrol update "nodename=$node" state=drain reason="$reason"
    wait_until "$limit" idle "$node" && return
    end_jobs "$node"
    wait_until 60 idle "$node"
}
