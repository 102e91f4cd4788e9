#!/bin/bash
# Clear a node of jobs: wait for them to end; after a limit, requeue them and cancel those that cannot be requeued.
#
# SLURM_JOB_LIMIT_SECONDS   seconds to wait for jobs to end

has_no_jobs() {
    local jobs
    jobs=$(squeue -h -w "$1" -o %A) && [ -z "$jobs" ]
}

# Interactive jobs and jobs submitted with --no-requeue cannot be requeued. `scontrol notify` reaches owners with a
# terminal; the log names all of them.
end_jobs() {
    local job owner state
    while read -r job owner state; do
        [ "$state" != COMPLETING ] || continue
        if scontrol requeue "$job"; then
            note "requeued job $job of $owner"
        else
            note "cancelling job $job of $owner, which cannot be requeued"
            scontrol notify "$job" "job $job is cancelled: node $1 must be free, and the job cannot be requeued" || :
            scancel "$job" || :
        fi
    done < <(squeue -h -w "$1" -o '%A %u %T' | sort -u)
}

# Drain a node; succeed once it has no jobs: node, drain reason, seconds to wait before jobs are requeued.
clear_jobs() {
    local node=$1 reason=$2 limit=$3
    scontrol update "nodename=$node" state=drain reason="$reason"
    wait_until "$limit" has_no_jobs "$node" && return
    end_jobs "$node"
    wait_until 60 has_no_jobs "$node"
}
