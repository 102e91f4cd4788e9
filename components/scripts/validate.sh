#!/bin/bash
# Submit one measurement through Slurm as a plain user, wait for it, and bring back what it printed. Whether the
# figures are good is not decided here: a job that failed is a result too, and so are nodes that other jobs are on.
#
# SCOPE            name of the measurement (a site, or cross-site)
# MEMBERS          its nodes, one a line: name, site, tailnet address
# RANKS_PER_NODE   processes on each
# RUN_AS           user who submits
# JOB_SCRIPT       text for sbatch, for all nodes
# PROGRAM          text of the program the job runs
# RING             text of the module it imports
# QUEUE_LIMIT, RUN_LIMIT   seconds to wait for the nodes, and for the end

# What this step found when it last ran, and what it found before that; the last one that was no BUSY.
KEPT=$STATE_DIR/validation/$SCOPE.json
LAST=$STATE_DIR/validation/$SCOPE.last.json
# Beyond the time that nodes are waited for: a job whose nodes are free starts with the scheduler's next look.
START_LIMIT=60

# Bytes of output kept: the start, which names ranks and devices, and the end, which is the table. What may be
# between is a debug log.
OUTPUT_LIMIT=200000

# Seconds for what is done as the user, who may have put anything in the place of a file: a FIFO, say.
USER_LIMIT=60

# A file, and how much of it.
kept_of() {
    [ -f "$1" ] || return 0
    if [ "$(stat -L -c %s "$1")" -le "$2" ]; then
        head -c "$2" "$1"
    else
        # Whole lines: half a line could be read as something else.
        head -c "$(($2 / 2))" "$1" | sed '$d'
        printf '[the middle of this output is left out]\n'
        tail -c "$(($2 / 2))" "$1" | sed 1d
    fi
}

# Root opens and writes nothing in a home: the job's files are written, and its output is read, as the user.
as_user() {
    timeout -k 5 "$USER_LIMIT" \
        runuser -u "$RUN_AS" -- env -i HOME="$HOME_DIR" PATH=/usr/bin:/bin USER="$RUN_AS" LANG=C.UTF-8 "$@" </dev/null
}
write_as_user() {
    # shellcheck disable=SC2016  # expanded by the user's bash
    as_user bash -c 'rm -rf "$1" && printf "%s\n" "$2" >"$1"' bash "$1" "$2"
}

# A kept result; nothing where it is none any more.
kept_in() { jq -c 'select(type == "object" and has("state") and has("measured_at"))' "$1" 2>/dev/null | grep .; }

# The nodes, one a line: name, site, whether it is idle, busy (other jobs have it) or out (no job can have it), and
# whether it is new: not measured in this scope at this address. Fails while one is not idle.
look() {
    local states known
    states=$(sinfo -h -N -p all -o '%N %T') || return 1
    known=$(kept_in "$LAST" | jq -r '.members // {} | to_entries[] | "\(.key) \(.value)"' || :) # nothing was kept
    ROLL=$(awk '
        FILENAME == ARGV[1] { state[$1] = $2; next }
        FILENAME == ARGV[2] { address[$1] = $2; next }
        {
            busy = state[$1] ~ /^((allocated|mixed|completing|planned|reserved|blocked)[-+]?|idle-)$/
            print $1, $2, state[$1] == "idle" ? "idle" : busy ? "busy" : "out", address[$1] == $3 ? "old" : "new"
        }' <(echo "$states") <(echo "$known") <(echo "$MEMBERS"))
    ! awk '$3 != "idle"' <<<"$ROLL" | grep -q .
}

# The new nodes, one idle peer at each site of theirs, and one at another site where the scope spans sites. Nothing
# where no node is new, one of them is not idle, or a peer is missing.
new_and_peers() {
    awk '
        { name[NR] = $1; site[NR] = $2; all[$2] = 1; peer[NR] = $3 " " $4 == "idle old" }
        $4 == "new" { new = 1; late = late || $3 != "idle"; take[NR] = 1; here[$2] = 1; count++ }
        END {
            if (!new || late) exit
            for (each in all) spans++
            for (line = 1; line <= NR; line++)
                if (peer[line] && site[line] in here && here[site[line]] == 1) { take[line] = 1; here[site[line]] = 2; count++ }
            for (each in here) sites++
            for (line = 1; line <= NR && spans > 1 && sites == 1; line++)
                if (peer[line] && !(site[line] in here)) { take[line] = 1; sites++; count++ }
            if (count < 2 || (spans > 1 && sites < 2)) exit
            for (line = 1; line <= NR; line++) if (take[line]) print name[line]
        }' <<<"$ROLL"
}

# Names, one a line, as a JSON list.
json_list() { jq -cRn '[inputs | select(. != "")]'; }

# What there is to say where nothing could be measured: BUSY, or UNAVAILABLE where a node is down or drained.
nothing_measured() {
    local state=BUSY last jobs
    if grep -q ' out ' <<<"$ROLL"; then state=UNAVAILABLE; fi
    last=$(kept_in "$LAST") || last=null
    note "nothing is measured, $state: $ROLL"
    jobs=$(awk '$3 == "busy" { print $1 }' <<<"$ROLL" | while read -r name; do
        squeue -h -w "$name" -o "$name job %A of %u, %L left" | head -n 1
    done)
    result job_id null
    result state "$(json_string "$state")"
    result exit_code null
    result seconds null
    result nodes '[]'
    result node_states "$(json_string "$(sinfo -R -h -o '%n: %E')")"
    result facts "$(jq -cRn '[inputs | select(. != "") | split(" ") | {(.[0]): (.[1:] | join(" "))}] | add // {}' <<<"$jobs")"
    result output '""'
    result left_out "$(awk '$3 != "idle" { print $1 }' <<<"$ROLL" | json_list)"
    result measured_at "$(date +%s)"
    result last "$last"
}

job_field() { scontrol show job "$JOB" --json | jq -r "$1"; }
job_state() { job_field '.jobs[0].job_state | if type == "array" then .[0] else . end'; }
job_started() {
    STATE=$(job_state)
    [[ $STATE != PENDING && $STATE != CONFIGURING ]]
}
job_ended() {
    STATE=$(job_state)
    [[ ! $STATE =~ ^(PENDING|CONFIGURING|RUNNING|COMPLETING|SUSPENDED)$ ]]
}

# Give the job back to nobody: its state is what it was when the wait ended.
give_up() {
    note "job $JOB: $1"
    scontrol show job "$JOB"
    as_user scancel "$JOB"
}

# Sites are measured side by side, and what lies between them when none of them is.
wait_for_other_measurements() {
    local how=-s
    [ "$(cut -d ' ' -f 2 <<<"$MEMBERS" | sort -u | wc -l)" -eq 1 ] || how=-x
    exec 8>"$LOCK_DIR/tailrack-measure.lock"
    flock "$how" -w "$RUN_LIMIT" 8 || note "another measurement goes on and on; not waiting for it"
}

up() {
    wait_for_other_measurements
    install -d -m 0700 "$STATE_DIR/validation"
    # From here on nothing that was measured before is this step's result.
    [ ! -e "$KEPT" ] || mv -f "$KEPT" "$LAST"
    local chosen left_out=''
    ROLL=''
    if wait_until "$QUEUE_LIMIT" look; then
        chosen=$(cut -d ' ' -f 1 <<<"$MEMBERS")
    elif [ -z "$ROLL" ]; then
        fail "slurmctld does not say what its nodes do" "see 'sinfo' and 'journalctl -u slurmctld' on $HOST_NAME"
    elif grep -q ' out ' <<<"$ROLL" || ! chosen=$(new_and_peers | grep .); then
        nothing_measured
        return
    else
        left_out=$(awk 'NR == FNR { take[$1]; next } !($1 in take) { print $1 }' <(echo "$chosen") <(echo "$ROLL"))
        note "only new nodes and their peers: $chosen"
    fi
    measure "$chosen" "$left_out"
}

# names of nodes that take part, and of those that do not, one a line
measure() {
    local chosen=$1 left_out=$2 ranks=$RANKS_PER_NODE directory begin waited='' count
    HOME_DIR=$(getent passwd "$RUN_AS" | cut -d: -f6)
    directory="$HOME_DIR/.tailrack/validation/$SCOPE"
    count=$(wc -l <<<"$chosen")
    as_user mkdir -p "$directory"
    write_as_user "$directory/all_reduce_perf.py" "$PROGRAM"
    write_as_user "$directory/tcp_ring.py" "$RING"
    write_as_user "$directory/job.sh" "$JOB_SCRIPT"
    as_user rm -rf "$directory/output"
    JOB=$(as_user env -C "$directory" sbatch --parsable --output="$directory/output" --nodes="$count" \
        --nodelist="${chosen//$'\n'/,}" --ntasks="$((count * ranks))" "$directory/job.sh") ||
        fail "Slurm did not take the job of $SCOPE" "see sinfo and sinfo -R on $HOST_NAME"
    JOB=${JOB%%;*}
    note "submitted job $JOB"
    wait_until "$START_LIMIT" job_started || waited="not started within ${START_LIMIT}s"
    note "job $JOB: $STATE"
    begin=$SECONDS
    if [ -n "$waited" ]; then
        give_up "$waited"
        # Somebody was quicker.
        if ! look && ! grep -q ' out ' <<<"$ROLL"; then
            nothing_measured
            return
        fi
    elif ! wait_until "$RUN_LIMIT" job_ended; then
        waited="not ended within ${RUN_LIMIT}s"
        give_up "$waited"
    fi
    local exit_code nodes known
    exit_code=$(job_field '.jobs[0].exit_code.return_code.number // .jobs[0].exit_code.return_code // 0')
    nodes=$(job_field '.jobs[0].nodes')
    # Nodes that were measured before stay known as long as they have their addresses.
    known=$(kept_in "$LAST" | jq -c '.members // {}') || known='{}'
    if [ "$STATE" != COMPLETED ] || [ "$exit_code" != 0 ]; then chosen=''; fi
    result job_id "$JOB"
    result state "$(json_string "$STATE")"
    result exit_code "$exit_code"
    result seconds "$((SECONDS - begin))"
    result nodes "$(scontrol show hostnames "$nodes" | json_list)"
    result node_states "$(json_string "$(sinfo -R -h -o '%n: %E')")"
    result facts "$(jq -cn --arg waited "$waited" 'if $waited == "" then {} else {$waited} end')"
    result output "$(as_user bash -c "$(declare -f kept_of); kept_of \"\$@\"" bash "$directory/output" "$OUTPUT_LIMIT" | jq -Rs .)"
    result left_out "$(json_list <<<"$left_out")"
    result measured_at "$(date +%s)"
    result members "$(jq -cRn --argjson known "$known" --arg chosen "$chosen" '($chosen | split("\n")) as $measured
        | [inputs | split(" ") | select(([.[0]] - $measured == []) or $known[.[0]] == .[2]) | {(.[0]): .[2]}]
        | add // {}' <<<"$MEMBERS")"
    ensure_file "$KEPT" 0600 root:root "{$RESULT}"
}

# Say once more what was found; measure where nothing is kept, as after BUSY.
recall() {
    local kept
    if kept=$(kept_in "$KEPT"); then RESULT=${kept:1:-1}; else up; fi
}
