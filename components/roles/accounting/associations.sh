#!/bin/bash
# uses: accounting/slurmdbd
# Bring slurmdbd's accounts, QOS and users to the config, with their limits. Entries that an administrator created by
# hand stay. Entries that this script created go when they leave the config; the usage of their jobs stays.
#
# ACCOUNTING_ACCOUNTS   `name parent share GPU-minutes jobs`, one a line, parents first; -1 is no limit
# ACCOUNTING_QOS        `name priority GPU-minutes jobs preempted,...`, one a line
# ACCOUNTING_USERS      `name account GPU-minutes jobs QOS,...`, one a line

# Files with the entries that this script created: names, or `name account` for users.
ACCOUNTING_MADE=$STATE_DIR/accounting

# Change slurmdbd. A change that is already in place is no failure.
change_slurmdbd() {
    local message
    note "sacctmgr $*"
    if message=$(accounting_command -i "$@" 2>&1); then return 0; fi
    grep -qiE 'nothing new added|nothing deleted|has not changed' <<<"$message" && return
    fail "slurmdbd refuses '$*': $(grep -v '^ *$' <<<"$message" | head -n 3 | paste -sd ' ')" \
        "correct tailrack:accounting or tailrack:users; 'journalctl -u slurmdbd' on $HOST_NAME has more"
}

show_slurmdbd() { accounting_command -nP show "$@"; }

# Record in a file that this script creates an entry, before it does.
record_created() {
    mkdir -p "$ACCOUNTING_MADE"
    touch "$ACCOUNTING_MADE/$1"
    grep -qxF "$2" "$ACCOUNTING_MADE/$1" || printf '%s\n' "$2" >>"$ACCOUNTING_MADE/$1"
}

# Print the lines of a file of created entries that are not on stdin.
created_and_unwanted() { [ ! -e "$ACCOUNTING_MADE/$1" ] || grep -vxFf /dev/stdin "$ACCOUNTING_MADE/$1" || :; }

apply_qos() {
    local names name priority minutes jobs preempts
    names=$(show_slurmdbd qos format=Name)
    while read -r name _; do
        if [ -z "$name" ] || grep -qxF "$name" <<<"$names"; then continue; fi
        record_created qos "$name"
        change_slurmdbd add qos "$name"
    done <<<"$ACCOUNTING_QOS"
    # In a second pass, because each QOS can preempt any other.
    while read -r name priority minutes jobs preempts; do
        [ -z "$name" ] || change_slurmdbd modify qos where "name=$name" set "priority=$priority" \
            "GrpTRESMins=gres/gpu=$minutes" "MaxJobsPerUser=$jobs" "preempt=$preempts"
    done <<<"$ACCOUNTING_QOS"
}

apply_accounts() {
    local rows name parent share minutes jobs
    rows=$(show_slurmdbd assoc where user= "cluster=$1" format=Account,ParentName)
    while read -r name parent share minutes jobs; do
        if ! grep -q "^$name|" <<<"$rows"; then
            record_created accounts "$name"
            change_slurmdbd add account "$name" "cluster=$1" "parent=$parent" "description=$name" organization=tailrack
        elif ! grep -qxF "$name|$parent" <<<"$rows"; then
            change_slurmdbd modify account where "name=$name" "cluster=$1" set "parent=$parent"
        fi
        change_slurmdbd modify account where "name=$name" "cluster=$1" set "fairshare=$share" \
            "GrpTRESMins=gres/gpu=$minutes" "GrpJobs=$jobs"
    done <<<"$ACCOUNTING_ACCOUNTS"
}

# Print the users of slurmdbd in the format of ACCOUNTING_USERS.
user_rows() {
    show_slurmdbd assoc where "cluster=$1" format=User,Account,GrpTRESMins,MaxJobs,QOS | awk -F'|' '$1 != "" {
        minutes = match($3, /gres\/gpu=[0-9]+/) ? substr($3, RSTART + 9, RLENGTH - 9) : -1
        print $1, $2, minutes, $4 == "" ? -1 : $4, $5 }'
}

apply_users() {
    local rows defaults name account minutes jobs qos
    rows=$(user_rows "$1")
    defaults=$(show_slurmdbd user format=User,DefaultAccount)
    while read -r name account minutes jobs qos; do
        if ! grep -q "^$name $account " <<<"$rows"; then
            record_created users "$name $account"
            change_slurmdbd add user "name=$name" "account=$account" "cluster=$1"
        fi
        grep -qxF "$name $account $minutes $jobs $qos" <<<"$rows" ||
            change_slurmdbd modify user where "name=$name" "account=$account" "cluster=$1" set \
                "GrpTRESMins=gres/gpu=$minutes" "MaxJobs=$jobs" "qoslevel=$qos"
        grep -qxF "$name|$account" <<<"$defaults" ||
            change_slurmdbd modify user where "name=$name" "cluster=$1" set "DefaultAccount=$account"
    done <<<"$ACCOUNTING_USERS"
}

# users/head.sh has cancelled their jobs; jobs that are still ending keep a user until the next run.
remove_unwanted() {
    local name account unwanted
    unwanted=$(created_and_unwanted users < <(cut -d ' ' -f 1,2 <<<"$ACCOUNTING_USERS"))
    while read -r name account; do
        [ -n "$name" ] || continue
        if accounting_command -i delete user "name=$name" "account=$account" "cluster=$1" ||
            ! user_rows "$1" | grep "^$name $account " >/dev/null; then
            sed -i "\|^$name $account\$|d" "$ACCOUNTING_MADE/users"
            note "removed $name from account $account"
        else
            note "$name stays in account $account until the next run: see slurmdbd's message above"
        fi
    done <<<"$unwanted"
    remove_unwanted_from accounts account < <(cut -d ' ' -f 1 <<<"$ACCOUNTING_ACCOUNTS")
    remove_unwanted_from qos qos < <(cut -d ' ' -f 1 <<<"$ACCOUNTING_QOS")
}

# Delete created entries: file, kind. stdin has the names to keep.
remove_unwanted_from() {
    local name unwanted
    unwanted=$(created_and_unwanted "$1")
    while read -r name; do
        [ -n "$name" ] || continue
        if [ "$2" = account ] && show_slurmdbd assoc where "account=$name" format=User | grep . >/dev/null; then
            note "account $name stays: it has users who were added by hand or have jobs"
        elif accounting_command -i delete "$2" "name=$name"; then
            sed -i "\|^$name\$|d" "$ACCOUNTING_MADE/$1"
        else
            note "$2 $name stays until the next run: see slurmdbd's message above"
        fi
    done <<<"$unwanted"
}

apply_associations() {
    local cluster
    cluster=$(sed -n 's/^ClusterName=//p' "$SLURM_BASE/slurm.conf")
    apply_qos
    apply_accounts "$cluster"
    apply_users "$cluster"
    remove_unwanted "$cluster"
}
