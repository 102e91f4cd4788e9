#!/bin/bash
# uses: munge/drained munge/cluster_keys munge/pause_steps ssh_trust/members
# Switch all machines to the next munge key at once, while jobs run and none starts (docs/decisions/0017). The head
# node's join step has prepared the key; this step sends it to the members and makes them switch.
#
# MUNGE_GENERATION   text of the config; a change of it rotates the key

# Held partitions, one per line. tailrack-munge-release releases them, even if this step is killed.
MUNGE_HELD=$STATE_DIR/munge.held
# Seconds to wait for earlier messages to nodes; after which jobs start again even if this step is not done.
MUNGE_QUIET=10 MUNGE_LONGEST=50
# Seconds in which a late node may still get the key in this run.
MUNGE_PATIENCE=180
# Set once MUNGE_LATE lists exactly the nodes without the key.
MUNGE_ASKED=''

munge_services() {
    note "munge key of generation '$MUNGE_GENERATION'"
    if [ ! -e "$MUNGE_NEXT" ] && [ ! -s "$MUNGE_LATE" ]; then return 0; fi
    take_munge_folder
    local key=$MUNGE_FILE digest answers node
    [ ! -e "$MUNGE_NEXT" ] || key=$MUNGE_NEXT
    digest=$(key_digest <"$key")
    answers=$(mktemp -d "$PRIVATE_DIR/munge.XXXXXX")
    members_but_here | tee "$MUNGE_LATE" | ask_members "$answers" "$key" munge-next
    AT_END+=(release_jobs)
    [ "$key" = "$MUNGE_FILE" ] || hold_jobs
    while read -r node; do [ ! -e "$answers/$node.yes" ] || echo "$node"; done <"$MUNGE_LATE" |
        ask_members "$answers" /dev/null munge-switch "$digest"
    if [ "$key" = "$MUNGE_NEXT" ]; then
        chown munge:munge "$MUNGE_NEXT"
        pause_steps
        mv -fT "$MUNGE_NEXT" "$MUNGE_FILE"
        systemctl restart munge
        resume_steps
    fi
    MUNGE_ASKED=asked
    update_pending "$answers" || note "some nodes do not have the key: $(paste -sd " " "$MUNGE_LATE")"
    release_jobs
    MUNGE_ANSWERS=$answers MUNGE_DIGEST=$digest
    LATER+=(fail_if_pending)
}

# Remove nodes that prove the new key from MUNGE_LATE; succeed if none is left.
update_pending() {
    local node
    while read -r node; do
        if unmunge <"$1/$node.said" >/dev/null 2>&1; then continue; fi
        note "$node: $(tail -n 1 "$1/$node.why")"
        echo "$node"
    done <"$MUNGE_LATE" >"$1/pending"
    mv -f "$1/pending" "$MUNGE_LATE"
    undrain_except "$MUNGE_LATE"
    [ ! -s "$MUNGE_LATE" ]
}

no_pending_messages() {
    [ -z "$(squeue -h -t CF,CG -o %A)" ] && sdiag | grep -E '^Agent count: *0$' >/dev/null
}

hold_jobs() {
    local partition
    sinfo -h -a -o '%R %a' | awk '$2 == "up" { print $1 }' | sort -u >"$MUNGE_HELD"
    systemctl stop tailrack-munge-release.timer tailrack-munge-release.service 2>/dev/null || :
    systemd-run -q --unit tailrack-munge-release --property=Restart=on-failure --property=RestartSec=5 --timer-property=AccuracySec=1s --on-active="$MUNGE_LONGEST" /usr/local/sbin/tailrack-munge-release
    while read -r partition; do scontrol update "partitionname=$partition" state=down; done <"$MUNGE_HELD"
    wait_until "$MUNGE_QUIET" no_pending_messages || note "some messages to nodes are still pending"
}

release_jobs() {
    wait_until 20 /usr/local/sbin/tailrack-munge-release ${MUNGE_ASKED:+asked} || return 1
    systemctl stop tailrack-munge-release.timer 2>/dev/null || :
}

# Ask the late nodes again: one that joins in this `up` has the key from its own step, and may have another address.
retry_pending() {
    [ -s "$MUNGE_LATE" ] || return 0
    ask_members "$MUNGE_ANSWERS" "$MUNGE_FILE" munge-next <"$MUNGE_LATE"
    ask_members "$MUNGE_ANSWERS" /dev/null munge-switch "$MUNGE_DIGEST" <"$MUNGE_LATE"
    update_pending "$MUNGE_ANSWERS"
}

fail_if_pending() {
    local pending=''
    wait_until "$MUNGE_PATIENCE" retry_pending || pending=$(paste -sd ' ' "$MUNGE_LATE")
    rm -rf "$MUNGE_ANSWERS"
    [ -z "$pending" ] || fail \
        "the munge key was changed, and $pending did not get it: no job starts there" \
        "make the node answer (tailrack-ask NODE last-failure), or remove it from the config; then run up again, which sends the key"
}
