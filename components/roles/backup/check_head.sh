#!/bin/bash
# Whether somebody answers where backups are to go, before anything is changed. What the target says is asked later, with
# the keys.
#
# BACKUP_HOST, BACKUP_PORT         of a machine; empty for S3 and without backups
# BACKUP_S3_HOST, BACKUP_S3_PORT   of S3; empty else

backup_check_head() {
    local host=$BACKUP_HOST$BACKUP_S3_HOST port=$BACKUP_PORT$BACKUP_S3_PORT
    [ -n "$host" ] || return 0
    if ! getent ahosts "$host" >/dev/null; then
        [[ -z $BACKUP_S3_HOST && $host != *.* ]] || fail "nobody here knows the backup's target $host" \
            "write a name or address that $HOST_NAME knows in tailrack:backup.target, then run up again"
        note "$host has no address here yet: it may be a node's name"
        return 0
    fi
    timeout 15 bash -c ": <>/dev/tcp/$host/$port" || fail \
        "the backup's target $host does not answer at port $port" \
        "see that it is on and lets $HOST_NAME in, or correct tailrack:backup; then run up again"
}
