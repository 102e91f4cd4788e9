#!/bin/bash
# uses: backup/target backup/remove
# Install an hourly timer on the head node, and make the first backup now.
#
# BACKUP_STATE   files and folders to save, one a line

BACKUP_FOLDER=/etc/tailrack/backup

backup_services() {
    local keys=$PRIVATE_DIR/backup message
    if [ -z "$BACKUP_REPOSITORY" ]; then
        remove_backup
        return
    fi
    rm -rf "$keys"
    write_target "$keys"
    check_target "$keys"
    if [ "$TARGET_HAS" = no ]; then
        message=$(backup_output "$keys" "$CHECK_LIMIT" init) ||
            fail "cannot create a backup repository at the target: $(last_reason <<<"$message")" \
                "make room there, or check that the account or key in tailrack:backup may write there; then run up again"
        close_target "$keys"
    fi
    try_target "$keys"
    rm -rf "$keys"
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
