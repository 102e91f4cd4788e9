#!/bin/bash
# uses: munge/drained munge/own munge/ends ssh_trust/members
# All machines change to the next munge key at one moment, while jobs go on and none starts (docs/decisions/0017). The head
# node's own join has laid the key ready; here it is handed to the members, and they are told to change.
#
# MUNGE_GENERATION   text of the config that is changed for another key

# Partitions that are held, one a line; tailrack-munge-release lets them start again, also where this step is killed.
MUNGE_HELD=$STATE_DIR/munge.held
# Seconds: for what was sent to nodes before, and after which jobs start again whatever has become of this step.
MUNGE_QUIET=10 MUNGE_LONGEST=50
# Seconds in which who is late may still come, in this run.
MUNGE_PATIENCE=180
# Whether MUNGE_LATE says who has the key.
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
    AT_END+=(let_jobs_start)
    [ "$key" = "$MUNGE_FILE" ] || hold_jobs
    while read -r node; do [ ! -e "$answers/$node.yes" ] || echo "$node"; done <"$MUNGE_LATE" |
        ask_members "$answers" /dev/null munge-switch "$digest"
    if [ "$key" = "$MUNGE_NEXT" ]; then
        chown munge:munge "$MUNGE_NEXT"
        hold_ends
        mv -fT "$MUNGE_NEXT" "$MUNGE_FILE"
        systemctl restart munge
        ends_go_on
    fi
    MUNGE_ASKED=asked
    keep_the_late "$answers" || note "not all have the key: $(paste -sd " " "$MUNGE_LATE")"
    let_jobs_start
    MUNGE_ANSWERS=$answers MUNGE_DIGEST=$digest
    LATER+=(name_the_late)
}

# Whose credential can be read with the key that is here has it; whether all have.
keep_the_late() {
    local node
    while read -r node; do
        if unmunge <"$1/$node.said" >/dev/null 2>&1; then continue; fi
        note "$node: $(tail -n 1 "$1/$node.why")"
        echo "$node"
    done <"$MUNGE_LATE" >"$1/late"
    mv -f "$1/late" "$MUNGE_LATE"
    take_back_with_the_key "$MUNGE_LATE"
    [ ! -s "$MUNGE_LATE" ]
}

nothing_on_its_way() {
    [ -z "$(squeue -h -t CF,CG -o %A)" ] && sdiag | grep -E '^Agent count: *0$' >/dev/null
}

hold_jobs() {
    local partition
    sinfo -h -a -o '%R %a' | awk '$2 == "up" { print $1 }' | sort -u >"$MUNGE_HELD"
    systemctl stop tailrack-munge-release.timer tailrack-munge-release.service 2>/dev/null || :
    systemd-run -q --unit tailrack-munge-release --property=Restart=on-failure --property=RestartSec=5 --timer-property=AccuracySec=1s --on-active="$MUNGE_LONGEST" /usr/local/sbin/tailrack-munge-release
    while read -r partition; do scontrol update "partitionname=$partition" state=down; done <"$MUNGE_HELD"
    wait_until "$MUNGE_QUIET" nothing_on_its_way || note "messages to nodes are on their way still"
}

let_jobs_start() {
    wait_until 20 /usr/local/sbin/tailrack-munge-release ${MUNGE_ASKED:+asked} || return 1
    systemctl stop tailrack-munge-release.timer 2>/dev/null || :
}

# Asked again: one that joins anew in this very `up` has the key from its own step, and another address.
none_is_late() {
    [ -s "$MUNGE_LATE" ] || return 0
    ask_members "$MUNGE_ANSWERS" "$MUNGE_FILE" munge-next <"$MUNGE_LATE"
    ask_members "$MUNGE_ANSWERS" /dev/null munge-switch "$MUNGE_DIGEST" <"$MUNGE_LATE"
    keep_the_late "$MUNGE_ANSWERS"
}

name_the_late() {
    local late=''
    wait_until "$MUNGE_PATIENCE" none_is_late || late=$(paste -sd ' ' "$MUNGE_LATE")
    rm -rf "$MUNGE_ANSWERS"
    [ -z "$late" ] || fail \
        "the munge key was changed, and $late did not get it: no job starts there" \
        "make it answer (tailrack-ask NODE last-failure), or remove it from the config; then run up again, which gives it the key"
}
