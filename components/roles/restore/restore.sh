#!/bin/bash
# uses: backup/target slurm/folder
# Restore the state of a lost head node on a new machine, before any of its daemons starts: its identity in the tailnet,
# with which nodes find it at the old address, its certificate authority, its data about members, and Slurm's state. It
# runs once, and only on a machine without such state.
#
# RESTORE_FROM     `latest`, or the id of a backup
# BACKUP_CLUSTER   the cluster's name

# The completely read backup; the marker of a finished restore.
RESTORING=$STATE_DIR/restoring
RESTORED=$STATE_DIR/restored

# When the backup was made, and its age when it was read, in seconds.
RESTORED_AGE=$STATE_DIR/restored-age

# Find the backup; set WANTED to its id and WANTED_MADE to its time.
backup_wanted() {
    local lent=$1 list=$1/list output other_clusters
    # stderr contains notes, such as retries, and is not part of the list.
    output=$({ backup_restic "$lent" 120 --no-lock snapshots --json --tag tailrack | head -c 67108864 >"$list"; } 2>&1 | tail -c 65536) || fail \
        "the archive at the backup's target cannot be read: $(last_reason <<<"$output")" \
        "see tailrack:backup.target, or restore the files there from another copy; then run up again"
    output=$(jq -r --arg cluster "$BACKUP_CLUSTER" --arg from "$RESTORE_FROM" \
        '[.[] | select(.hostname == $cluster and ($from == "latest" or (.id | startswith($from))))] | sort_by(.time) | last // empty | "\(.id) \(.time)"' "$list")
    WANTED=${output%% *} WANTED_MADE=$(date -ud "${output#* }" +%s)
    [ -z "$WANTED" ] || return 0
    other_clusters=$(jq -r '[.[].hostname] | unique | join(", ")' "$list")
    fail "there is no backup${RESTORE_FROM:+ ($RESTORE_FROM)} of cluster $BACKUP_CLUSTER at the backup's target${other_clusters:+, only of $other_clusters}" \
        "set tailrack:backup.target to the target of $BACKUP_CLUSTER, or set tailrack:head.restore_from to latest"
}

# Read the whole backup and verify its blocks, before anything is restored.
read_backup() {
    local lent=$1 output
    rm -rf "$RESTORING"
    install -d -m 0700 "$RESTORING"
    output=$(backup_output "$lent" 3000 --no-lock restore "$WANTED" --target "$RESTORING/tree" --verify) || {
        rm -rf "$RESTORING"
        fail "the backup ${WANTED:0:8} is broken: $(last_reason <<<"$output")" \
            "set tailrack:head.restore_from to an earlier one ('restic snapshots' lists them), then run up again"
    }
    grep -qsxF "cluster=$BACKUP_CLUSTER" "$RESTORING/tree/backup" && [ -d "$RESTORING/tree/var/lib/slurm/slurmctld" ] || {
        rm -rf "$RESTORING"
        fail "the backup ${WANTED:0:8} is not one of a head node of $BACKUP_CLUSTER" \
            "set tailrack:head.restore_from to another one, then run up again"
    }
}

# Copy the backup into place. The machine keeps its SSH host keys, which the config contains. The munge key comes from
# the stack.
restore_files() {
    local tree=$RESTORING/tree path
    [ ! -d "$tree/var/lib/tailrack" ] || cp -a "$tree/var/lib/tailrack" /var/lib/
    [ ! -d "$tree/var/lib/slurm/slurmctld" ] || restore_slurm_state "$tree/var/lib/slurm/slurmctld"
    # Services add their lines to slurm.conf again when they run: a new slurmctld does not start without slurmdbd, which
    # comes later.
    rm -rf "$STATE_DIR/slurm/services"
    for path in "$tree"/etc/exports.d/tailrack-*.exports; do
        [ ! -f "$path" ] || install -D -m 0644 "$path" "/etc/exports.d/${path##*/}"
    done
    [ ! -d "$tree/dumps" ] || { rm -rf "$STATE_DIR/dumps" && cp -a "$tree/dumps" "$STATE_DIR/dumps"; }
    restore_tailnet_identity "$tree/var/lib/tailscale/tailscaled.state"
}

# Restore slurmctld's state. It belongs to root until Slurm's account exists (slurm/folder.sh).
restore_slurm_state() {
    local target=/var/lib/slurm/slurmctld
    # An earlier version saved links and other special files too.
    find "$1" ! -type f ! -type d -delete
    take_slurm_folder
    rm -rf "$target.restored"
    cp -a --no-preserve=ownership "$1" "$target.restored"
    : >"$SLURM_RESTORED"
    rm -rf "$target"
    mv -T "$target.restored" "$target"
}

# Take over the lost machine's tailnet identity and address, unless this machine is a member already or the state was
# sealed by the lost machine's TPM.
restore_tailnet_identity() {
    local state=$1
    if [ "$NODE_ADOPT" = true ] || ! grep -qs '"_machinekey"' "$state" || in_tailnet; then
        note "joining the tailnet as a new machine"
        return 0
    fi
    if command -v tailscale >/dev/null; then systemctl stop tailscaled; fi
    install -d -m 0700 /var/lib/tailscale
    install -m 0600 -o root -g root "$state" /var/lib/tailscale/tailscaled.state
    note "took over the lost head node's identity in the tailnet"
}

# Report the backup's age. A head node that an earlier version restored has no such file.
report_age() {
    local backup_time=0 age=0
    [ ! -e "$RESTORED_AGE" ] || read -r backup_time age <"$RESTORED_AGE"
    result restored_made "$backup_time"
    result restored_age "$((age > 0 ? age : 0))"
}

restore_restore() {
    local lent=$PRIVATE_DIR/backup
    if [ -e "$RESTORED" ]; then
        note "this head node was restored from backup $(cat "$RESTORED")"
        report_age
        return 0
    fi
    if [ ! -e "$RESTORING/tree/whole" ]; then
        [ ! -e "$STATE_DIR/ssh_authority" ] && [ ! -e /var/lib/slurm/slurmctld/job_state ] || fail \
            "tailrack:head.restore_from needs a new machine, and $HOST_NAME has a head node's state, which would be lost" \
            "remove restore_from from the config; or, to return to the backup, run 'make down' first"
        rm -rf "$lent"
        write_target "$lent"
        check_target "$lent"
        [ "$TARGET_HAS" = yes ] || fail "there is no archive at the backup's target" \
            "correct tailrack:backup.target, or remove tailrack:head.restore_from"
        backup_wanted "$lent"
        read_backup "$lent"
        rm -rf "$lent"
        printf '%s %s\n' "$WANTED_MADE" "$(($(date +%s) - WANTED_MADE))" >"$RESTORING/tree/age"
        printf '%s\n' "$WANTED" >"$RESTORING/tree/whole"
    fi
    restore_files
    [ ! -e "$RESTORING/tree/age" ] || mv -fT "$RESTORING/tree/age" "$RESTORED_AGE"
    mv -fT "$RESTORING/tree/whole" "$RESTORED"
    rm -rf "$RESTORING"
    report_age
}
