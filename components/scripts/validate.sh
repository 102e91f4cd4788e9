#!/bin/bash
# Submit one measurement through Slurm as a plain user, wait for it, and bring back what it printed. Whether the
# figures are good is not decided here: a job that failed is a result too.
#
# SCOPE         name of the measurement (a site, or cross-site)
# RUN_AS        user who submits
# JOB_SCRIPT    text for sbatch
# PROGRAM       text of the program the job runs
# RING          text of the module it imports
# QUEUE_LIMIT, RUN_LIMIT   seconds to wait for a start, and for the end

# Bytes of output kept: the start, which names ranks and devices, and the end, which is the table. What may be
# between is a debug log.
OUTPUT_LIMIT=200000

kept_of() {
    if [ "$(stat -c %s "$1")" -le "$OUTPUT_LIMIT" ]; then
        cat "$1"
    else
        # Whole lines: half a line could be read as something else.
        head -c "$((OUTPUT_LIMIT / 2))" "$1" | sed '$d'
        printf '[the middle of this output is left out]\n'
        tail -c "$((OUTPUT_LIMIT / 2))" "$1" | sed 1d
    fi
}

as_user() { runuser -u "$RUN_AS" -- env -i HOME="$HOME_DIR" PATH=/usr/bin:/bin USER="$RUN_AS" LANG=C.UTF-8 "$@"; }

job_field() { scontrol show job "$JOB" --json | jq -r "$1"; }
job_state() { job_field '.jobs[0].job_state | if type == "array" then .[0] else . end'; }
job_started() { [[ $(job_state) != PENDING && $(job_state) != CONFIGURING ]]; }
job_ended() { [[ ! $(job_state) =~ ^(PENDING|CONFIGURING|RUNNING|COMPLETING|SUSPENDED)$ ]]; }

up() {
    HOME_DIR=$(getent passwd "$RUN_AS" | cut -d: -f6)
    local directory="$HOME_DIR/.tailrack/validation/$SCOPE" begin waited=''
    as_user mkdir -p "$directory"
    as_user tee "$directory/all_reduce_perf.py" <<<"$PROGRAM" >/dev/null
    as_user tee "$directory/tcp_ring.py" <<<"$RING" >/dev/null
    as_user tee "$directory/job.sh" <<<"$JOB_SCRIPT" >/dev/null
    as_user rm -f "$directory/output"
    JOB=$(cd "$directory" && as_user sbatch --parsable --output="$directory/output" "$directory/job.sh") ||
        fail "Slurm did not take the job of $SCOPE" "see sinfo and sinfo -R on $HOST_NAME"
    JOB=${JOB%%;*}
    note "submitted job $JOB"
    wait_until "$QUEUE_LIMIT" job_started || waited="not started within ${QUEUE_LIMIT}s"
    begin=$SECONDS
    if [ -z "$waited" ] && ! wait_until "$RUN_LIMIT" job_ended; then waited="not ended within ${RUN_LIMIT}s"; fi
    local state
    state=$(job_state)
    if [ -n "$waited" ]; then
        note "job $JOB: $waited"
        scontrol show job "$JOB"
        as_user scancel "$JOB"
    fi
    local exit_code nodes
    exit_code=$(job_field '.jobs[0].exit_code.return_code.number // .jobs[0].exit_code.return_code // 0')
    nodes=$(job_field '.jobs[0].nodes')
    result job_id "$JOB"
    result state "$(json_string "$state")"
    result exit_code "$exit_code"
    result seconds "$((SECONDS - begin))"
    result nodes "$(scontrol show hostnames "$nodes" | jq -cRn '[inputs]')"
    result node_states "$(json_string "$(sinfo -R -h -o '%n: %E')")"
    result facts "$(jq -cn --arg waited "$waited" 'if $waited == "" then {} else {$waited} end')"
    result output "$(kept_of "$directory/output" 2>/dev/null | jq -Rs .)"
}
