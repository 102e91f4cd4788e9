#!/bin/bash
# Check that the backup's target answers, before anything is changed. The services step checks it again with the keys.
#
# BACKUP_HOST, BACKUP_PORT         of a machine; empty for S3 and without backups
# BACKUP_S3_HOST, BACKUP_S3_PORT   of S3; empty otherwise

backup_check_head() {
    local host=$BACKUP_HOST$BACKUP_S3_HOST port=$BACKUP_PORT$BACKUP_S3_PORT
    [ -n "$host" ] || return 0
    if ! getent ahosts "$host" >/dev/null; then
        [[ -z $BACKUP_S3_HOST && $host != *.* ]] || fail "cannot resolve the backup's target $host" \
            "set tailrack:backup.target to a name that $HOST_NAME can resolve, or to an address, then run up again"
        note "$host does not resolve yet; it may be a node's name"
        return 0
    fi
    timeout 15 bash -c ": <>/dev/tcp/$host/$port" || fail \
        "the backup's target $host does not answer at port $port" \
        "check that it is running and accepts connections from $HOST_NAME, or correct tailrack:backup; then run up again"
}
