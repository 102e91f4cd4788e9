#!/bin/bash
# uses: backup/target backup/remove
# An hourly timer on the head node, and the first backup at once.
#
# BACKUP_STATE   files and folders that are saved, one a line

BACKUP_FOLDER=/etc/tailrack/backup

backup_services() {
    local lent=$PRIVATE_DIR/backup said
    if [ -z "$BACKUP_REPOSITORY" ]; then
        remove_backup
        return
    fi
    rm -rf "$lent"
    write_target "$lent"
    check_target "$lent"
    if [ "$TARGET_HAS" = no ]; then
        said=$(backup_words "$lent" "$CHECK_LIMIT" init) || fail "no backup can be begun at the target: $(last_reason <<<"$said")" \
            "make room there, or see that tailrack:backup says who may write there; then run up again"
        close_target "$lent"
    fi
    try_target "$lent"
    rm -rf "$lent"
    write_target "$BACKUP_FOLDER"
    ensure_file "$BACKUP_FOLDER/state" 0600 root:root "$BACKUP_STATE"
    install -d -m 0755 /usr/local/lib/tailrack /usr/local/lib/tailrack/backup.d
    reload_units tailrack-backup.service tailrack-backup.timer
    systemctl reset-failed tailrack-backup.service || note "it had not failed"
    systemctl start tailrack-backup.service || fail "the first backup failed: $(sed -n 's/^reason=//p' "$STATE_DIR/backup-state")" \
        "see 'journalctl -u tailrack-backup' on $HOST_NAME, then run up again"
    enable_units --now tailrack-backup.timer
    result backup_made "$(sed -n 's/^done=//p' "$STATE_DIR/backup-state")"
}
