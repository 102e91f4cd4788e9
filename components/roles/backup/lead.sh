#!/bin/bash
# Whether somebody answers where backups are to go, before anything is changed. What the target says is asked later, with
# the keys.
#
# BACKUP_HOST, BACKUP_PORT   of a machine; empty for S3 and without backups

backup_lead() {
    [ -n "$BACKUP_HOST" ] || return 0
    if ! getent ahosts "$BACKUP_HOST" >/dev/null; then
        [[ $BACKUP_HOST != *.* ]] || fail "nobody here knows the backup's target $BACKUP_HOST" \
            "write a name or address that $HOST_NAME knows in tailrack:backup.target, then run up again"
        note "$BACKUP_HOST has no address here yet: it may be a node's name"
        return 0
    fi
    timeout 15 bash -c ": <>/dev/tcp/$BACKUP_HOST/$BACKUP_PORT" || fail \
        "the backup's target $BACKUP_HOST does not answer at port $BACKUP_PORT" \
        "see that it is on and lets $HOST_NAME in, or correct tailrack:backup; then run up again"
}
