#!/bin/bash
# Submit one measurement through Slurm as a plain user, wait for it, and return its output. Other code judges the
# output: a failed job is a result too, and so are nodes that run other jobs.
#
# SCOPE            name of the measurement (a site, or cross-site)
# MEMBERS          its nodes, one per line: name, site, tailnet address
# SETTINGS         digest of the settings: a change measures all nodes again
# RUN_AS           user who submits
# PLAN             plan of the measurement (components/measurement/plan.py), as JSON
# DRIVER           command line of the program that submits the jobs and reads their output (components/validation)
# JOB_SCRIPT       text for sbatch, for all nodes, if they have no GPUs
# QUEUE_LIMIT, RUN_LIMIT, MEASUREMENT_LIMIT   seconds to wait for the nodes, for one job, and for all jobs

# <scope>.json is this step's last result, <scope>.last.json the one before it, without BUSY.
KEPT=$STATE_DIR/validation
# The driver's exit status if Slurm rejects a job.
REFUSED=3

# Root opens and writes nothing in a home: the driver writes the jobs' files and reads their output as the user. So its
# output is untrusted: JSON of a limited size, or nothing.
OUTPUT_LIMIT=64000000
# Seconds for slurmctld to report its nodes: it may restart, or hang until its watchdog restarts it.
ANSWER_LIMIT=120

# Run the driver. $1: names of the nodes that take part, one per line.
drive() {
    local request driver
    read -ra driver <<<"$DRIVER"
    printf -v request '{"plan":%s,"nodes":%s,"absent":%s,"cpu_job":%s}' \
        "$PLAN" "$(json_list <<<"$1")" "$(absent "$1")" "$(json_string "$JOB_SCRIPT")"
    as_user "$RUN_AS" "$MEASUREMENT_LIMIT" "$OUTPUT_LIMIT" env HOME="$HOME_DIR" PATH=/usr/bin:/bin LANG=C.UTF-8 \
        "${driver[@]}" <<<"$request"
}

# Print a stored result; nothing if it is not valid.
kept_in() { jq -c 'select(type == "object" and has("state") and has("measured_at"))' "$1" 2>/dev/null | grep .; }

# Print nodes whose slurmd does not answer the head node over the tailnet, one per line. They may still reach slurmctld,
# so Slurm may report them as idle, but a job on them would never start.
unreachable() {
    # shellcheck disable=SC2016  # the inner shells expand it
    awk '{ print $1, $3 }' <<<"$MEMBERS" | xargs -r -P 64 -n 2 bash -c '
        for try in 1 2; do timeout 8 bash -c "exec 3<>/dev/tcp/$1/6818" 2>/dev/null && exit; sleep 1; done; echo "$0"'
}

# Print nodes whose only jobs are measurements, one per line.
own_jobs_alone() {
    squeue -h -o '%u %j %N' | while read -r user job nodes; do
        [ -z "$nodes" ] || scontrol show hostnames "$nodes" </dev/null | sed "s/^/$([[ $user == "$RUN_AS" && $job =~ ^(validate|prepare)- ]] && echo own || echo other) /"
    done | awk '$1 == "own" { own[$2] } $1 == "other" { other[$2] } END { for (node in own) if (!(node in other)) print node }'
}

# Set ROLL to the nodes, one per line: name; site; idle, busy (it runs other jobs) or out (it can run no job); new or
# old (measured in this scope at this address); Slurm's state; and the reason of a drained or down node (Slurm keeps old
# reasons). Fail while a node is not idle.
read_nodes() {
    local states measured name
    states=$(sinfo -h -N -p all -o '%N %T %E') || return 1
    # After a reconfiguration during a job, slurmctld (24.11) lists the job's node as mixed even after the job has
    # ended, until a query for that node alone.
    if grep -q '^[^ ]* mixed\( \|$\)' <<<"$states"; then
        while read -r name; do scontrol show node "$name" >/dev/null </dev/null || :; done < <(awk '$2 == "mixed" { print $1 }' <<<"$states")
        states=$(sinfo -h -N -p all -o '%N %T %E') || return 1
    fi
    measured=$(kept_in "$KEPT/$SCOPE.last.json" | jq -r '.members // {} | to_entries[] | "\(.key) \(.value)"' || :) # no stored result
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
            # A state with a reason, like those of Slurm.
            if ($1 in silent) { busy = 0; state[$1] = "unreachable"; reason[$1] = "no answer at port 6818 over the tailnet" }
            print $1, $2, state[$1] == "idle" ? "idle" : busy ? "busy" : "out", address[$1] == $3 ? "old" : "new", state[$1], reason[$1]
        }' <(echo "$states") <(echo "$measured") <(echo "$SILENT") <(echo "$MEMBERS"))
    ! awk '$3 != "idle"' <<<"$ROLL" | grep . >/dev/null
}

# Succeed once slurmctld has reported its nodes. Set IDLE=yes if all are idle.
nodes_known() {
    if read_nodes; then IDLE=yes; fi
    [ -n "$ROLL" ]
}

# Succeed if all nodes are idle (IDLE=yes), or the others are drained without a job: waiting does not end a drain.
nodes_settled() {
    if read_nodes; then
        IDLE=yes
        return
    fi
    ! awk '$3 != "idle" && $5 != "drained"' <<<"$ROLL" | grep . >/dev/null
}

# Print the new nodes, one idle peer at each of their sites, and one at another site if the scope spans sites. Print
# nothing if no node is new, a new node is busy, or a peer is missing. Ignore nodes that are out.
new_and_peers() {
    awk '
        $3 == "out" { next }
        { name[++all] = $1; site[all] = $2; all_sites[$2] = 1; peer[all] = $3 " " $4 == "idle old" }
        $4 == "new" { new = 1; late = late || $3 != "idle"; take[all] = 1; taken[$2] = 1; count++ }
        END {
            if (!new || late) exit
            for (each_site in all_sites) spans++
            for (i = 1; i <= all; i++)
                if (peer[i] && site[i] in taken && taken[site[i]] == 1) { take[i] = 1; taken[site[i]] = 2; count++ }
            for (each_site in taken) sites++
            for (i = 1; i <= all && spans > 1 && sites == 1; i++)
                if (peer[i] && !(site[i] in taken)) { take[i] = 1; sites++; count++ }
            if (count < 2 || (spans > 1 && sites < 2)) exit
            for (i = 1; i <= all; i++) if (take[i]) print name[i]
        }' <<<"$ROLL"
}

# Print the idle nodes if they are enough: two, and from two sites if the scope spans sites.
idle_nodes() {
    awk '
        { all[$2] = 1 }
        $3 == "idle" { name[++count] = $1; idle[$2] = 1 }
        END {
            for (site in all) spans++
            for (site in idle) sites++
            if (count < 2 || (spans > 1 && sites < 2)) exit
            for (line = 1; line <= count; line++) print name[line]
        }' <<<"$ROLL"
}

# Succeed if this scope has a measurement with the same settings, so that it is enough to measure new nodes.
measured_before() { kept_in "$KEPT/$SCOPE.last.json" | jq -e --arg settings "$SETTINGS" '.settings == $settings' >/dev/null; }

# Print why nodes without other jobs are left out, as a JSON object. $1: names of nodes that take part, one per line.
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

# Print names, one per line, as a JSON list.
json_list() {
    local name list=''
    while read -r name; do [ -z "$name" ] || list+="${list:+,}$(json_string "$name")"; done
    printf '[%s]' "$list"
}

# Report that nothing could be measured: BUSY, or UNAVAILABLE if a node is down or drained.
report_nothing_measured() {
    local state=BUSY last jobs name
    # A measurement job that does not end must not count as BUSY: a later `up` would find it still running.
    ROLL=$(awk 'FILENAME == ARGV[1] { own[$1]; next } $3 == "busy" && $1 in own { $3 = "out"; $5 = "held a job of a measurement does not end there" } 1' \
        <(own_jobs_alone) <(echo "$ROLL"))
    if grep -q ' out ' <<<"$ROLL"; then state=UNAVAILABLE; fi
    last=$(kept_in "$KEPT/$SCOPE.last.json") || last=null
    note "nothing was measured, $state: $ROLL"
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

# Take a lock so that sites are measured at the same time, but the links between sites alone.
wait_for_other_measurements() {
    local how=-s
    [ "$(cut -d ' ' -f 2 <<<"$MEMBERS" | sort -u | wc -l)" -eq 1 ] || how=-x
    install -d -m 0700 "$PRIVATE_DIR"
    exec 8>"$PRIVATE_DIR/measure.lock"
    flock "$how" -w "$RUN_LIMIT" 8 || note "another measurement does not end; continuing without waiting"
}

up() {
    wait_for_other_measurements
    install -d -m 0700 "$KEPT"
    # From now on an old measurement is not this step's result.
    [ ! -e "$KEPT/$SCOPE.json" ] || mv -f "$KEPT/$SCOPE.json" "$KEPT/$SCOPE.last.json"
    local chosen left_out
    ROLL='' IDLE=no SILENT=''
    SILENT=$(unreachable)
    # slurmctld does not answer for a moment while it reads its files. The config limits the wait for other jobs
    # (QUEUE_LIMIT).
    wait_until "$ANSWER_LIMIT" nodes_known || fail "slurmctld does not report its nodes" \
        "run 'sinfo' and 'journalctl -u slurmctld' on $HOST_NAME"
    [ "$IDLE" = yes ] || wait_until "$QUEUE_LIMIT" nodes_settled || :
    if [ "$IDLE" = yes ]; then
        # Measured nodes keep working while new nodes are measured. If no node is new, all are measured again.
        chosen=$(measured_before && new_and_peers) || :
        [ -n "$chosen" ] || chosen=$(cut -d ' ' -f 1 <<<"$MEMBERS")
    else
        # Leave out down and drained nodes and name them; wait for nodes with other jobs.
        if ! awk '$3 == "busy"' <<<"$ROLL" | grep . >/dev/null; then
            chosen=$(idle_nodes)
        else
            chosen=$(new_and_peers)
        fi
        if [ -z "$chosen" ]; then
            report_nothing_measured
            return
        fi
    fi
    left_out=$(awk 'NR == FNR { take[$1]; next } !($1 in take) { print $1 }' <(echo "$chosen") <(echo "$ROLL"))
    note "measuring: $chosen"
    measure "$chosen" "$left_out"
}

# Measure nodes. $1, $2: names of nodes that take part and that do not, one per line.
measure() {
    local chosen=$1 left_out=$2 status=0 report measured
    HOME_DIR=$(getent passwd "$RUN_AS" | cut -d: -f6)
    report=$(drive "$chosen") || status=$?
    [ "$status" -ne "$REFUSED" ] || fail "Slurm rejected the job of $SCOPE" "run sinfo and sinfo -R on $HOST_NAME"
    # Accept exactly one object, because fields are appended to its text below.
    report=$(jq -ces 'select(length == 1)[0] | select(type == "object" and has("state") and has("job_id"))' <<<"$report") && [ "$status" -eq 0 ] ||
        fail "the measurement of $SCOPE was interrupted"
    # Another job got the nodes first.
    if jq -e '.state == "PENDING"' <<<"$report" >/dev/null && ! read_nodes && ! grep -q ' out ' <<<"$ROLL"; then
        report_nothing_measured
        return
    fi
    # Nodes stay measured as long as they keep their addresses.
    measured=$(kept_in "$KEPT/$SCOPE.last.json" | jq -c '.members // {}') || measured='{}'
    jq -e '.state == "COMPLETED" and .exit_code == 0' <<<"$report" >/dev/null || chosen=''
    RESULT=${report:1:-1}
    result node_states "$(json_string "$(sinfo -R -h -o '%n: %E')")"
    result left_out "$(json_list <<<"$left_out")"
    result measured_at "$(date +%s)"
    result settings "$(json_string "$SETTINGS")"
    result members "$(jq -cRn --argjson before "$measured" --arg chosen "$chosen" '($chosen | split("\n")) as $now
        | [inputs | split(" ") | select(([.[0]] - $now == []) or $before[.[0]] == .[2]) | {(.[0]): .[2]}]
        | add // {}' <<<"$MEMBERS")"
    ensure_file "$KEPT/$SCOPE.json" 0600 root:root "{$RESULT}"
}

# Print the stored result again; measure if no result exists, as after BUSY.
recall() {
    local kept
    if kept=$(kept_in "$KEPT/$SCOPE.json"); then RESULT=${kept:1:-1}; else up; fi
}
