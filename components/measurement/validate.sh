#!/bin/bash
# Submit one measurement through Slurm as a plain user, wait for it, and bring back what it printed. Whether the
# figures are good is not decided here: a job that failed is a result too, and so are nodes that other jobs are on.
#
# SCOPE            name of the measurement (a site, or cross-site)
# MEMBERS          its nodes, one a line: name, site, tailnet address
# SETTINGS         stands for how it is measured: another text, another measurement of all of them
# RUN_AS           user who submits
# PLAN             what is measured, and how (components/measurement/plan.py), as JSON
# DRIVER           text of the program that submits the jobs and reads them (components/validation), as JSON
# JOB_SCRIPT       text for sbatch, for all nodes, where they have no GPUs
# JOB_FILES        texts of the files that job runs, by name, as JSON
# QUEUE_LIMIT, RUN_LIMIT, MEASUREMENT_LIMIT   seconds to wait for the nodes, for the end of a job, and for that of all jobs

# <scope>.json is what this step found when it last ran, <scope>.last.json what it found before that, the last one that
# was no BUSY.
KEPT=$STATE_DIR/validation
# The driver's exit status where Slurm did not take a job.
REFUSED=3

# Root opens and writes nothing in a home: the jobs' files are written, and their output is read, as the user. What the
# driver prints is a user's words: JSON of some size, or nothing.
OUTPUT_LIMIT=64000000
# Seconds for a slurmctld that starts again, or that hangs and is started again (its watchdog), to say what its nodes do.
ANSWER_LIMIT=120

# names of the nodes that take part, one a line
drive() {
    local asked
    printf -v asked '{"program":%s,"plan":%s,"nodes":%s,"absent":%s,' "$DRIVER" "$PLAN" "$(json_list <<<"$1")" "$(absent "$1")"
    printf -v asked '%s"jobs":{"cpu_job":%s,"cpu_files":%s}}' "$asked" "$(json_string "$JOB_SCRIPT")" "$JOB_FILES"
    as_user "$RUN_AS" "$MEASUREMENT_LIMIT" "$OUTPUT_LIMIT" env HOME="$HOME_DIR" PATH=/usr/bin:/bin LANG=C.UTF-8 \
        python3 -I -c 'import json, sys; told = json.load(sys.stdin); exec(told["program"])' <<<"$asked"
}

# A kept result; nothing where it is none any more.
kept_in() { jq -c 'select(type == "object" and has("state") and has("measured_at"))' "$1" 2>/dev/null | grep .; }

# Nodes at whose slurmd the head node gets no answer over the tailnet, one a line: Slurm may still call them idle, as they
# reach it, and a job on them would never start.
unreachable() {
    # shellcheck disable=SC2016  # it is for the other shells
    awk '{ print $1, $3 }' <<<"$MEMBERS" | xargs -r -P 64 -n 2 bash -c '
        for try in 1 2; do timeout 8 bash -c "exec 3<>/dev/tcp/$1/6818" 2>/dev/null && exit; sleep 1; done; echo "$0"'
}

# Nodes that only jobs of the cluster's own measurements are on, one a line.
own_jobs_alone() {
    squeue -h -o '%u %j %N' | while read -r user job nodes; do
        [ -z "$nodes" ] || scontrol show hostnames "$nodes" </dev/null | sed "s/^/$([[ $user == "$RUN_AS" && $job =~ ^(validate|prepare)- ]] && echo own || echo other) /"
    done | awk '$1 == "own" { own[$2] } $1 == "other" { other[$2] } END { for (each in own) if (!(each in other)) print each }'
}

# The nodes, one a line: name, site, whether it is idle, busy (other jobs have it) or out (no job can have it), whether
# it is new: not measured in this scope at this address, Slurm's word for its state, and the reason of a node that is drained
# or down (Slurm keeps old ones). Fails while one is not idle.
look() {
    local states known name
    states=$(sinfo -h -N -p all -o '%N %T %E') || return 1
    # slurmctld (24.11) that was told to reconfigure while a job ran goes on to list its node as mixed when the job has ended,
    # until somebody asks for that node alone.
    if grep -q '^[^ ]* mixed\( \|$\)' <<<"$states"; then
        while read -r name; do scontrol show node "$name" >/dev/null </dev/null || :; done < <(awk '$2 == "mixed" { print $1 }' <<<"$states")
        states=$(sinfo -h -N -p all -o '%N %T %E') || return 1
    fi
    known=$(kept_in "$KEPT/$SCOPE.last.json" | jq -r '.members // {} | to_entries[] | "\(.key) \(.value)"' || :) # nothing was kept
    ROLL=$(awk '
        FILENAME == ARGV[1] {
            node = $1
            state[node] = $2
            if ($2 ~ /^(drain|down|fail)/ && $3 != "none") { sub(/^[^ ]+ +[^ ]+ */, ""); reason[node] = $0 }
            next
        }
        FILENAME == ARGV[2] { address[$1] = $2; next }
        FILENAME == ARGV[3] { silent[$1]; next }
        {
            busy = state[$1] ~ /^((allocated|mixed|completing|planned|reserved|blocked)[-+]?|idle-)$/
            # As a word and a reason, like the states of Slurm that come with one.
            if ($1 in silent) { busy = 0; state[$1] = "unreachable"; reason[$1] = "no answer at port 6818 over the tailnet" }
            print $1, $2, state[$1] == "idle" ? "idle" : busy ? "busy" : "out", address[$1] == $3 ? "old" : "new", state[$1], reason[$1]
        }' <(echo "$states") <(echo "$known") <(echo "$SILENT") <(echo "$MEMBERS"))
    ! awk '$3 != "idle"' <<<"$ROLL" | grep . >/dev/null
}

# Whether slurmctld has said what its nodes do; IDLE=yes where all of them are idle.
nodes_known() {
    if look; then IDLE=yes; fi
    [ -n "$ROLL" ]
}

# Whether waiting is over: all nodes are idle (IDLE=yes), or those that are not are drained and have no job. No wait ends a drain.
nodes_settled() {
    if look; then
        IDLE=yes
        return
    fi
    ! awk '$3 != "idle" && $5 != "drained"' <<<"$ROLL" | grep . >/dev/null
}

# The new nodes, one idle peer at each site of theirs, and one at another site where the scope spans sites. Nothing
# where no node is new, one of them is busy, or a peer is missing. Who is out is not asked.
new_and_peers() {
    awk '
        $3 == "out" { next }
        { name[++all] = $1; site[all] = $2; known[$2] = 1; peer[all] = $3 " " $4 == "idle old" }
        $4 == "new" { new = 1; late = late || $3 != "idle"; take[all] = 1; here[$2] = 1; count++ }
        END {
            if (!new || late) exit
            for (each in known) spans++
            for (at = 1; at <= all; at++)
                if (peer[at] && site[at] in here && here[site[at]] == 1) { take[at] = 1; here[site[at]] = 2; count++ }
            for (each in here) sites++
            for (at = 1; at <= all && spans > 1 && sites == 1; at++)
                if (peer[at] && !(site[at] in here)) { take[at] = 1; sites++; count++ }
            if (count < 2 || (spans > 1 && sites < 2)) exit
            for (at = 1; at <= all; at++) if (take[at]) print name[at]
        }' <<<"$ROLL"
}

# Those that a job can have, where there are still enough of them: two, and of two sites where the scope spans sites.
idle_ones() {
    awk '
        { all[$2] = 1 }
        $3 == "idle" { name[++count] = $1; here[$2] = 1 }
        END {
            for (each in all) spans++
            for (each in here) sites++
            if (count < 2 || (spans > 1 && sites < 2)) exit
            for (line = 1; line <= count; line++) print name[line]
        }' <<<"$ROLL"
}

# Whether this scope has been measured before as it is to be measured now, so that new nodes alone can be looked at.
measured_before() { kept_in "$KEPT/$SCOPE.last.json" | jq -e --arg settings "$SETTINGS" '.settings == $settings' >/dev/null; }

# Why nodes are left out on which no other job is, as a JSON object. names of nodes that take part, one a line
absent() {
    awk 'NR == FNR { take[$1]; next }
        $3 == "out" {
            node = $1
            state = $5 == "" ? "unknown to Slurm" : $5
            sub(/^[^ ]+ [^ ]+ [^ ]+ [^ ]+ [^ ]* */, "")
            print node, state ($0 == "" ? "" : ": " $0)
        }
        $3 == "idle" && !($1 in take) { print $1, "measured before" }' <(echo "$1") <(echo "$ROLL") |
        jq -cRn '[inputs | split(" ") | {(.[0]): (.[1:] | join(" "))}] | add // {}'
}

# Names, one a line, as a JSON list.
json_list() {
    local name list=''
    while read -r name; do [ -z "$name" ] || list+="${list:+,}$(json_string "$name")"; done
    printf '[%s]' "$list"
}

# What there is to say where nothing could be measured: BUSY, or UNAVAILABLE where a node is down or drained.
nothing_measured() {
    local state=BUSY last jobs name
    # Jobs of our own that do not end are no work of others, which a later `up` would find done.
    ROLL=$(awk 'FILENAME == ARGV[1] { own[$1]; next } $3 == "busy" && $1 in own { $3 = "out"; $5 = "held a job of a measurement does not end there" } 1' \
        <(own_jobs_alone) <(echo "$ROLL"))
    if grep -q ' out ' <<<"$ROLL"; then state=UNAVAILABLE; fi
    last=$(kept_in "$KEPT/$SCOPE.last.json") || last=null
    note "nothing is measured, $state: $ROLL"
    jobs=$(awk '$3 == "busy" { print $1 }' <<<"$ROLL" | while read -r name; do
        squeue -h -w "$name" -o "$name job %A of %u, %L left" | sed -n 1p
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
    result absent "$(absent "$(awk '$3 != "out" { print $1 }' <<<"$ROLL")")"
    result measured_at "$(date +%s)"
    result last "$last"
}

# Sites are measured side by side, and what lies between them when none of them is.
wait_for_other_measurements() {
    local how=-s
    [ "$(cut -d ' ' -f 2 <<<"$MEMBERS" | sort -u | wc -l)" -eq 1 ] || how=-x
    install -d -m 0700 "$PRIVATE_DIR"
    exec 8>"$PRIVATE_DIR/measure.lock"
    flock "$how" -w "$RUN_LIMIT" 8 || note "another measurement goes on and on; not waiting for it"
}

up() {
    wait_for_other_measurements
    install -d -m 0700 "$KEPT"
    # From here on nothing that was measured before is this step's result.
    [ ! -e "$KEPT/$SCOPE.json" ] || mv -f "$KEPT/$SCOPE.json" "$KEPT/$SCOPE.last.json"
    local chosen left_out
    ROLL='' IDLE=no SILENT=''
    SILENT=$(unreachable)
    # For how long others may have the nodes is the config's to say; slurmctld is away for a moment whenever it reads its files.
    wait_until "$ANSWER_LIMIT" nodes_known || fail "slurmctld does not say what its nodes do" \
        "see 'sinfo' and 'journalctl -u slurmctld' on $HOST_NAME"
    [ "$IDLE" = yes ] || wait_until "$QUEUE_LIMIT" nodes_settled || :
    if [ "$IDLE" = yes ]; then
        # Who has been measured need not stop working for a new node; where no node is new, all are measured anew.
        chosen=$(measured_before && new_and_peers) || :
        [ -n "$chosen" ] || chosen=$(cut -d ' ' -f 1 <<<"$MEMBERS")
    else
        # Nodes that are down or drained are left out and named; those of other jobs are waited for.
        if ! awk '$3 == "busy"' <<<"$ROLL" | grep . >/dev/null; then
            chosen=$(idle_ones)
        else
            chosen=$(new_and_peers)
        fi
        if [ -z "$chosen" ]; then
            nothing_measured
            return
        fi
    fi
    left_out=$(awk 'NR == FNR { take[$1]; next } !($1 in take) { print $1 }' <(echo "$chosen") <(echo "$ROLL"))
    note "measured: $chosen"
    measure "$chosen" "$left_out"
}

# names of nodes that take part, and of those that do not, one a line
measure() {
    local chosen=$1 left_out=$2 status=0 told known
    HOME_DIR=$(getent passwd "$RUN_AS" | cut -d: -f6)
    told=$(drive "$chosen") || status=$?
    [ "$status" -ne "$REFUSED" ] || fail "Slurm did not take the job of $SCOPE" "see sinfo and sinfo -R on $HOST_NAME"
    # One object: what is added to it below is added to all that was said.
    told=$(jq -ces 'select(length == 1)[0] | select(type == "object" and has("state") and has("job_id"))' <<<"$told") && [ "$status" -eq 0 ] ||
        fail "the measurement of $SCOPE broke off"
    # Somebody was quicker.
    if jq -e '.state == "PENDING"' <<<"$told" >/dev/null && ! look && ! grep -q ' out ' <<<"$ROLL"; then
        nothing_measured
        return
    fi
    # Nodes that were measured before stay known as long as they have their addresses.
    known=$(kept_in "$KEPT/$SCOPE.last.json" | jq -c '.members // {}') || known='{}'
    jq -e '.state == "COMPLETED" and .exit_code == 0' <<<"$told" >/dev/null || chosen=''
    RESULT=${told:1:-1}
    result node_states "$(json_string "$(sinfo -R -h -o '%n: %E')")"
    result left_out "$(json_list <<<"$left_out")"
    result measured_at "$(date +%s)"
    result settings "$(json_string "$SETTINGS")"
    result members "$(jq -cRn --argjson known "$known" --arg chosen "$chosen" '($chosen | split("\n")) as $measured
        | [inputs | split(" ") | select(([.[0]] - $measured == []) or $known[.[0]] == .[2]) | {(.[0]): .[2]}]
        | add // {}' <<<"$MEMBERS")"
    ensure_file "$KEPT/$SCOPE.json" 0600 root:root "{$RESULT}"
}

# Say once more what was found; measure where nothing is kept, as after BUSY.
recall() {
    local kept
    if kept=$(kept_in "$KEPT/$SCOPE.json"); then RESULT=${kept:1:-1}; else up; fi
}
