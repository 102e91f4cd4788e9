#!/bin/bash
# uses: backup/target slurm/folder tailnet/membership
# The state of a head node that is lost, on the machine that takes its place: its identity in the tailnet, so that nodes find
# it where it was, its authority, what it kept of members, and Slurm's own state. Before any of their daemons starts.
# Only onto a machine without such state, and once.
#
# RESTORE_FROM     `latest`, or the id of a backup
# BACKUP_CLUSTER   the cluster's name

# A tree that was read whole, and the word for one that lies in its place.
RESTORING=$STATE_DIR/restoring
RESTORED=$STATE_DIR/restored

# When the backup was made, and how old it was when it was read: seconds.
RESTORED_AGE=$STATE_DIR/restored-age

# Which backup is meant: its id, and when it was made.
backup_wanted() {
    local lent=$1 list=$1/list said others
    # What it notes beside its answer, such as that it has tried again, is no part of that.
    said=$({ backup_restic "$lent" 120 --no-lock snapshots --json --tag tailrack | head -c 67108864 >"$list"; } 2>&1 | tail -c 65536) || fail \
        "the archive at the backup's target cannot be read: $(last_reason <<<"$said")" \
        "see tailrack:backup.target, or restore the files there from a copy of their own; then run up again"
    said=$(jq -r --arg cluster "$BACKUP_CLUSTER" --arg from "$RESTORE_FROM" \
        '[.[] | select(.hostname == $cluster and ($from == "latest" or (.id | startswith($from))))] | sort_by(.time) | last // empty | "\(.id) \(.time)"' "$list")
    WANTED=${said%% *} WANTED_MADE=$(date -ud "${said#* }" +%s)
    [ -z "$WANTED" ] || return 0
    others=$(jq -r '[.[].hostname] | unique | join(", ")' "$list")
    fail "there is no backup${RESTORE_FROM:+ ($RESTORE_FROM)} of cluster $BACKUP_CLUSTER at the backup's target${others:+, only of $others}" \
        "name the target of $BACKUP_CLUSTER in tailrack:backup.target, or write latest as tailrack:head.restore_from"
}

# All of it is read, and its blocks held against their digests, before any of it is put anywhere.
read_backup() {
    local lent=$1 said
    rm -rf "$RESTORING"
    install -d -m 0700 "$RESTORING"
    said=$(backup_output "$lent" 3000 --no-lock restore "$WANTED" --target "$RESTORING/tree" --verify) || {
        rm -rf "$RESTORING"
        fail "the backup ${WANTED:0:8} is broken: $(last_reason <<<"$said")" \
            "name an earlier one as tailrack:head.restore_from ('restic snapshots' lists them), then run up again"
    }
    grep -qsxF "cluster=$BACKUP_CLUSTER" "$RESTORING/tree/backup" && [ -d "$RESTORING/tree/var/lib/slurm/slurmctld" ] || {
        rm -rf "$RESTORING"
        fail "the backup ${WANTED:0:8} is no backup of a head node of $BACKUP_CLUSTER" \
            "name another one as tailrack:head.restore_from, then run up again"
    }
}

# What is the machine's own is not taken: its SSH host keys, by which the config knows it. The munge key comes from the stack.
bring_back() {
    local tree=$RESTORING/tree path
    [ ! -d "$tree/var/lib/tailrack" ] || cp -a "$tree/var/lib/tailrack" /var/lib/
    [ ! -d "$tree/var/lib/slurm/slurmctld" ] || bring_back_slurm "$tree/var/lib/slurm/slurmctld"
    # What services have added to slurm.conf they add again when they are there: slurmctld does not begin without slurmdbd
    # where it has kept nothing of it yet, and that comes later.
    rm -rf "$STATE_DIR/slurm/services"
    for path in "$tree"/etc/exports.d/tailrack-*.exports; do
        [ ! -f "$path" ] || install -D -m 0644 "$path" "/etc/exports.d/${path##*/}"
    done
    [ ! -d "$tree/dumps" ] || { rm -rf "$STATE_DIR/dumps" && cp -a "$tree/dumps" "$STATE_DIR/dumps"; }
    become_the_lost_one "$tree/var/lib/tailscale/tailscaled.state"
}

# It is root's until there is an account that it can be given to (slurm/folder.sh).
bring_back_slurm() {
    local its_state=/var/lib/slurm/slurmctld
    # Of an earlier version, which saved whatever lay there.
    find "$1" ! -type f ! -type d -delete
    take_slurm_folder
    rm -rf "$its_state.restored"
    cp -a --no-preserve=ownership "$1" "$its_state.restored"
    : >"$SLURM_RESTORED"
    rm -rf "$its_state"
    mv -T "$its_state.restored" "$its_state"
}

# In the tailnet the new machine is the old one, with its address. Not where it is a member by itself, or where the state
# was sealed by the lost machine's TPM.
become_the_lost_one() {
    local state=$1
    if [ "$NODE_ADOPT" = true ] || ! grep -qs '"_machinekey"' "$state" || in_tailnet; then
        note "it joins the tailnet as a new machine"
        return 0
    fi
    if tailscale_there; then systemctl stop tailscaled; fi
    install -d -m 0700 /var/lib/tailscale
    install -m 0600 -o root -g root "$state" /var/lib/tailscale/tailscaled.state
    note "it has the lost head node's identity in the tailnet"
}

# What the program tells people of it. A head node that an earlier version restored has no such file.
say_age() {
    local made=0 age=0
    [ ! -e "$RESTORED_AGE" ] || read -r made age <"$RESTORED_AGE"
    result restored_made "$made"
    result restored_age "$((age > 0 ? age : 0))"
}

restore_restore() {
    local lent=$PRIVATE_DIR/backup
    if [ -e "$RESTORED" ]; then
        note "this head node was made of $(cat "$RESTORED")"
        say_age
        return 0
    fi
    if [ ! -e "$RESTORING/tree/whole" ]; then
        [ ! -e "$STATE_DIR/ssh_authority" ] && [ ! -e /var/lib/slurm/slurmctld/job_state ] || fail \
            "tailrack:head.restore_from is for a new machine, and $HOST_NAME has a head node's state, which would be lost" \
            "take restore_from out of the config; or, to go back to the backup, 'make down' first"
        rm -rf "$lent"
        write_target "$lent"
        check_target "$lent"
        [ "$TARGET_HAS" = yes ] || fail "there is no archive at the backup's target" \
            "correct tailrack:backup.target, or take tailrack:head.restore_from out"
        backup_wanted "$lent"
        read_backup "$lent"
        rm -rf "$lent"
        printf '%s %s\n' "$WANTED_MADE" "$(($(date +%s) - WANTED_MADE))" >"$RESTORING/tree/age"
        printf '%s\n' "$WANTED" >"$RESTORING/tree/whole"
    fi
    bring_back
    [ ! -e "$RESTORING/tree/age" ] || mv -fT "$RESTORING/tree/age" "$RESTORED_AGE"
    mv -fT "$RESTORING/tree/whole" "$RESTORED"
    rm -rf "$RESTORING"
    say_age
}
