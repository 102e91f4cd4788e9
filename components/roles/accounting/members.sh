#!/bin/bash
# uses: accounting/slurmdbd
# Accounts, QOS and users of the config in slurmdbd, each with its limits. What somebody else has made there is left alone; what
# was made here and is in the config no more goes. What its jobs have used stays.
#
# ACCOUNTING_ACCOUNTS   `name parent share GPU-minutes jobs`, one a line, parents first; -1 is no limit
# ACCOUNTING_QOS        `name priority GPU-minutes jobs preempted,...`, one a line
# ACCOUNTING_USERS      `name account GPU-minutes jobs QOS,...`, one a line

# What was made here: names, and of users `name account`.
ACCOUNTING_MADE=$STATE_DIR/accounting

# Have slurmdbd do something. That it is so already is no failure.
book() {
    local said
    note "sacctmgr $*"
    if said=$(accounting_command -i "$@" 2>&1); then return 0; fi
    grep -qiE 'nothing new added|nothing deleted|has not changed' <<<"$said" && return
    fail "slurmdbd refuses '$*': $(grep -v '^ *$' <<<"$said" | head -n 3 | paste -sd ' ')" \
        "correct tailrack:accounting or tailrack:users; 'journalctl -u slurmdbd' on $HOST_NAME says more"
}

booked() { accounting_command -nP show "$@"; }

# Note in a file that something was made here, before it is.
made_here() {
    mkdir -p "$ACCOUNTING_MADE"
    touch "$ACCOUNTING_MADE/$1"
    grep -qxF "$2" "$ACCOUNTING_MADE/$1" || printf '%s\n' "$2" >>"$ACCOUNTING_MADE/$1"
}

# Lines that were made here, as the file has them, and are not among those on stdin.
made_and_gone() { [ ! -e "$ACCOUNTING_MADE/$1" ] || grep -vxFf /dev/stdin "$ACCOUNTING_MADE/$1" || :; }

keep_qos() {
    local there name priority minutes jobs preempts
    there=$(booked qos format=Name)
    while read -r name _; do
        if [ -z "$name" ] || grep -qxF "$name" <<<"$there"; then continue; fi
        made_here qos "$name"
        book add qos "$name"
    done <<<"$ACCOUNTING_QOS"
    # One that another preempts is there by now.
    while read -r name priority minutes jobs preempts; do
        [ -z "$name" ] || book modify qos where "name=$name" set "priority=$priority" "GrpTRESMins=gres/gpu=$minutes" \
            "MaxJobsPerUser=$jobs" "preempt=$preempts"
    done <<<"$ACCOUNTING_QOS"
}

keep_accounts() {
    local there name parent share minutes jobs
    there=$(booked assoc where user= "cluster=$1" format=Account,ParentName)
    while read -r name parent share minutes jobs; do
        if ! grep -q "^$name|" <<<"$there"; then
            made_here accounts "$name"
            book add account "$name" "cluster=$1" "parent=$parent" "description=$name" organization=tailrack
        elif ! grep -qxF "$name|$parent" <<<"$there"; then
            book modify account where "name=$name" "cluster=$1" set "parent=$parent"
        fi
        book modify account where "name=$name" "cluster=$1" set "fairshare=$share" "GrpTRESMins=gres/gpu=$minutes" "GrpJobs=$jobs"
    done <<<"$ACCOUNTING_ACCOUNTS"
}

# A row of what slurmdbd has of a user, in the words of ACCOUNTING_USERS.
users_booked() {
    booked assoc where "cluster=$1" format=User,Account,GrpTRESMins,MaxJobs,QOS | awk -F'|' '$1 != "" {
        minutes = match($3, /gres\/gpu=[0-9]+/) ? substr($3, RSTART + 9, RLENGTH - 9) : -1
        print $1, $2, minutes, $4 == "" ? -1 : $4, $5 }'
}

keep_users() {
    local there defaults name account minutes jobs qos
    there=$(users_booked "$1")
    defaults=$(booked user format=User,DefaultAccount)
    while read -r name account minutes jobs qos; do
        if ! grep -q "^$name $account " <<<"$there"; then
            made_here users "$name $account"
            book add user "name=$name" "account=$account" "cluster=$1"
        fi
        grep -qxF "$name $account $minutes $jobs $qos" <<<"$there" ||
            book modify user where "name=$name" "account=$account" "cluster=$1" set "GrpTRESMins=gres/gpu=$minutes" \
                "MaxJobs=$jobs" "qoslevel=$qos"
        grep -qxF "$name|$account" <<<"$defaults" ||
            book modify user where "name=$name" "cluster=$1" set "DefaultAccount=$account"
    done <<<"$ACCOUNTING_USERS"
}

# Their jobs were cancelled before (users/head.sh); those that end still keep the user until the next run.
forget_gone_members() {
    local name account gone
    gone=$(made_and_gone users < <(cut -d ' ' -f 1,2 <<<"$ACCOUNTING_USERS"))
    while read -r name account; do
        [ -n "$name" ] || continue
        if accounting_command -i delete user "name=$name" "account=$account" "cluster=$1" || ! users_booked "$1" | grep "^$name $account " >/dev/null; then
            sed -i "\|^$name $account\$|d" "$ACCOUNTING_MADE/users"
            note "$name is in account $account no more"
        else
            note "$name stays in account $account for now: slurmdbd says why above"
        fi
    done <<<"$gone"
    forget_gone accounts account < <(cut -d ' ' -f 1 <<<"$ACCOUNTING_ACCOUNTS")
    forget_gone qos qos < <(cut -d ' ' -f 1 <<<"$ACCOUNTING_QOS")
}

# Names that are still wanted come on stdin.
forget_gone() {
    local name gone
    gone=$(made_and_gone "$1")
    while read -r name; do
        [ -n "$name" ] || continue
        if [ "$2" = account ] && booked assoc where "account=$name" format=User | grep . >/dev/null; then
            note "account $name stays: users are in it that were not made here, or have jobs"
        elif accounting_command -i delete "$2" "name=$name"; then
            sed -i "\|^$name\$|d" "$ACCOUNTING_MADE/$1"
        else
            note "$2 $name stays for now: slurmdbd says why above"
        fi
    done <<<"$gone"
}

keep_members() {
    local cluster
    cluster=$(sed -n 's/^ClusterName=//p' "$SLURM_BASE/slurm.conf")
    keep_qos
    keep_accounts "$cluster"
    keep_users "$cluster"
    forget_gone_members "$cluster"
}
