#!/bin/bash
# uses: slurm/files slurm/topology
# A program of the head node's own, and the only one that has a slurmctld that runs take what members and pools have written:
# one call for all who come or leave at the same time, however many they are and whichever stack they are of.
#
# A node has to be known before it can be placed (Slurm up to 25.05), so the call comes after the last one has made itself
# known. What there is to do it finds out by looking; that somebody has asked (tailrack-reconfigure.path) only wakes it, and
# its timer does where nobody could. So it may be cut off anywhere.

# Seconds: how long those who wait to be placed wait for the next one to come, and for all that come; for jobs that begin.
RECONFIGURE_NEXT=10 RECONFIGURE_LONGEST=120 RECONFIGURE_BEGIN=15
# Minutes after which one that was expected is so no more.
RECONFIGURE_EXPECTED=30

# Lines of the first text that the second one lacks.
without() { grep -vxFf <(printf '%s\n' "$2") <<<"$1" | grep . || :; }

# Nodes of the cluster that slurmctld knows and has no place for (UNPLACED), and those that are on their way (COMING).
look() {
    local known members path placed expected
    known=$(sinfo -h -a -N -o %N | sort -u) && placed=$(placed_nodes) || return 1
    members=$(for path in "$SLURM_NODES"/*/site; do [ ! -e "$path" ] || basename "${path%/site}"; done)
    UNPLACED=$(without "$(grep -xFf <(printf '%s\n' "$members") <<<"$known" | grep . || :)" "$placed")
    mkdir -p "$SLURM_EXPECTED"
    find "$SLURM_EXPECTED" -type f -mmin "+$RECONFIGURE_EXPECTED" -delete
    expected=$(ls "$SLURM_EXPECTED")
    COMING=$(without "$expected" "$known")
    while read -r path; do [ -z "$path" ] || rm -f "$SLURM_EXPECTED/$path"; done < <(without "$expected" "$COMING")
}

# The files that slurmctld would be given: a digest of them, and whether it has others.
compose() {
    local names
    mapfile -t names < <(ls "$SLURM_BASE")
    write_slurm_files "$SLURM_BASE" "$SLURM_NEXT" 2>/dev/null
    DIGEST=$(cd "$SLURM_NEXT" && sha256sum -- "${names[@]}" | sha256sum)
    NEW=$(not_taken "$SLURM_NEXT" "${names[@]}")
}

# Whether it is time: nobody is on the way any more, or nobody has come for a while. Where nobody's step waits, it can wait
# longer; that of a head node that runs jobs does not.
due() {
    local quiet=$((SECONDS - LAST)) waited=$((SECONDS - FIRST))
    if [ -n "$(without "$UNPLACED" "$HOST_NAME")" ]; then
        [ -z "$COMING" ] || [ "$quiet" -ge "$RECONFIGURE_NEXT" ] || [ "$waited" -ge "$RECONFIGURE_LONGEST" ]
    elif [ -n "$UNPLACED" ]; then
        [ -z "$COMING" ] || [ "$waited" -ge "$RECONFIGURE_LONGEST" ]
    else
        [ -z "$COMING" ] && [ "$quiet" -ge "$RECONFIGURE_NEXT" ]
    fi
}

# slurmd of 23.11.4 forgets a job that has been given its node and has begun no step there yet; others have lost races with
# jobs that begin or end.
no_job_begins() { ! squeue -h -t CF,R -o '%T %M' | grep -Eq '^CONFIGURING|^RUNNING 0:0[0-4]$'; }

nobody_unplaced() { look && [ -z "$UNPLACED" ]; }

take_all() {
    wait_until "$RECONFIGURE_BEGIN" no_job_begins || note "jobs begin all the time: not waiting for a moment without"
    note "for slurmctld: ${NEW:-no other files} ${UNPLACED:+with ${UNPLACED//$'\n'/ }}"
    lock_slurm_files
    offer_slurm_files "$SLURM_BASE" always || REASON=$REFUSED
    unlock_slurm_files
    if [ -z "$REASON" ] && ! wait_until "$RECONFIGURE_NEXT" nobody_unplaced; then
        REASON="slurmctld has no place for ${UNPLACED//$'\n'/ }, with the files that it has taken"
    fi
    [ -z "$REASON" ] || printf '%s\n' "$DIGEST$UNPLACED" >"$SLURM_IN_VAIN"
    [ -z "$REASON" ] || fail "$REASON" "see what it says above, and 'journalctl -u slurmctld'"
}

say_why_not() {
    local status=$?
    [ "$status" -eq 0 ] || printf 'tailrack-reconfigure: %s; next: %s\n' "${REASON:-stopped}" "${REMEDY:-see above}" >&2
}

slurm_reconfigure() {
    set -euo pipefail
    trap say_why_not EXIT
    local now seen=none
    SLURM_NEXT=$STATE_DIR/slurm/next SLURM_IN_VAIN=$STATE_DIR/slurm/in-vain FIRST='' LAST=$SECONDS REASON=''
    : >"$SLURM_ASKED"
    while :; do
        [ -d "$SLURM_BASE" ] || { rm -f "$SLURM_ASKED"; return 0; } # the head node was never finished
        if [ -e "$SLURM_ASKED" ]; then
            rm -f "$SLURM_ASKED"
            compose
        fi
        wait_until 60 look || fail "slurmctld does not answer" "see 'journalctl -u slurmctld'"
        if [ -z "$UNPLACED$NEW$COMING" ]; then return 0; fi
        now=$UNPLACED/$COMING/$DIGEST
        if [ "$now" != "$seen" ]; then seen=$now LAST=$SECONDS; fi
        if [ -z "$UNPLACED" ]; then FIRST=''; else FIRST=${FIRST:-$SECONDS}; fi
        # What came to nothing is not done again before something else is there.
        if [ "$(cat "$SLURM_IN_VAIN" 2>/dev/null)" = "$DIGEST$UNPLACED" ]; then
            if [ -z "$COMING" ]; then return 0; fi
        elif [ -n "$UNPLACED$NEW" ] && due; then
            take_all
            : >"$SLURM_ASKED"
        else
            sleep 1
        fi
    done
}
