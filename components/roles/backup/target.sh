#!/bin/bash
# uses: backup/restic
# The backup's target: its address, its identity and the keys. It is checked before anything is changed.
#
# BACKUP_REPOSITORY                     in restic's format; empty without backups
# BACKUP_HOST, BACKUP_USER, BACKUP_PORT, BACKUP_HOST_KEY   of a machine; empty for S3
# BACKUP_PRIVATE_KEY, BACKUP_PASSWORD, BACKUP_SECRET_KEY   secret
# BACKUP_ACCESS_KEY, BACKUP_BUCKET, BACKUP_S3_HOST   of S3
# BACKUP_CLUSTER                        the cluster's name
# NFS_EXPORTS_PATH, NFS_EXPORTS_MOUNT   the share

TARGET=tailrack-backup-target
# Kilobytes that must be free there.
ROOM_NEEDED=262144

# Messages of S3 for an unknown or wrong key, or one without permission.
S3_REFUSES='access ?denied|forbidden|signature we calculated|SignatureDoesNotMatch|access key id|InvalidAccessKeyId'

# Time limit in seconds for a short command: restic retries for 15 minutes when S3 refuses a request.
CHECK_LIMIT=45

# Write all that restic and ssh need to folder $1, which only root can open.
write_target() {
    local folder=$1
    install -d -m 0700 -o root -g root "$folder"
    ensure_file "$folder/repository" 0600 root:root "$BACKUP_REPOSITORY"
    ensure_file "$folder/cluster" 0600 root:root "$BACKUP_CLUSTER"
    ensure_file "$folder/password" 0600 root:root "$BACKUP_PASSWORD"
    if [ -n "$BACKUP_HOST" ]; then
        ensure_file "$folder/key" 0600 root:root "$BACKUP_PRIVATE_KEY"
        ensure_file "$folder/known_hosts" 0600 root:root "$TARGET $BACKUP_HOST_KEY"
        ensure_file "$folder/ssh_config" 0600 root:root "Host $TARGET
    HostName $BACKUP_HOST
    Port $BACKUP_PORT
    User $BACKUP_USER
    IdentityFile $folder/key
    IdentitiesOnly yes
    BatchMode yes
    HostKeyAlias $TARGET
    StrictHostKeyChecking yes
    UserKnownHostsFile $folder/known_hosts
    GlobalKnownHostsFile /dev/null
    CanonicalizeHostname no
    ConnectTimeout 10
    ServerAliveInterval 10
    ServerAliveCountMax 3"
    fi
    if [ -n "$BACKUP_SECRET_KEY" ]; then
        ensure_file "$folder/credentials" 0600 root:root "[default]
aws_access_key_id = $BACKUP_ACCESS_KEY
aws_secret_access_key = $BACKUP_SECRET_KEY"
    fi
}

# Close the folder that restic has created: with most umasks others can open it.
close_target() {
    local output
    [ -n "$BACKUP_HOST" ] || return 0
    output=$(printf 'chmod 700 %s\n' "${BACKUP_REPOSITORY##*:}" | timeout 60 sftp -F "$1/ssh_config" -b - "$TARGET" 2>&1 | tail -c 65536) ||
        fail "cannot close the backup's target to other accounts there: $(printable "$(tail -n 1 <<<"$output")")" \
            "run 'chmod 700 ${BACKUP_REPOSITORY##*:}' on $BACKUP_HOST, then run up again"
}

# Fail with one sentence if the target cannot be used: it does not answer, the folder is open to others or on the share,
# the disk is full, or the password differs. Sets TARGET_HAS to yes if there is a repository.
check_target() {
    local folder=$1 output status=0 path real mode free
    TARGET_HAS=no
    if [ -n "$BACKUP_HOST" ]; then
        path=${BACKUP_REPOSITORY##*:}
        output=$(printf -- '-cd %s\npwd\n-ls -lan %s\n-df %s\n' "$path" "$path" "$path" |
            timeout 60 sftp -F "$folder/ssh_config" -b - "$TARGET" 2>&1 | head -c 1048576) || status=$?
        [ "$status" -eq 0 ] ||
            fail "the backup's target $BACKUP_USER@$BACKUP_HOST refuses access: $(printable "$(tail -n 1 <<<"$output")")" \
            "check that $BACKUP_HOST answers SSH at port $BACKUP_PORT; check host_key and private_key in tailrack:backup; run up again"
        real=$(sed -n 's/^Remote working directory: //p' <<<"$output" | head -n 1)
        case $real/ in
        "$NFS_EXPORTS_MOUNT"/* | "$NFS_EXPORTS_PATH"/*) fail "the backup's target $path is $(printable "$real") there, which is on the share" \
            "set tailrack:backup.target to a folder on $BACKUP_HOST's own disk" ;;
        esac
        mode=$(sed -nE '/^d.*[ \/]\.$/ { s/ .*//p; q }' <<<"$output")
        [[ -z $mode || $mode == d???------* ]] ||
            fail "the backup's target $path on $BACKUP_HOST is open to other accounts there ($(printable "$mode"))" \
            "run 'chmod 700 $path' on $BACKUP_HOST, or set a folder that does not exist yet; then run up again"
        free=$(awk '/Avail/ { for (i = 1; i <= NF; i++) if ($i == "Avail") column = i; next } column && $column ~ /^[0-9]+$/ { print $column; exit }' <<<"$output")
        [ -z "$free" ] || [ "$free" -ge "$ROOM_NEEDED" ] || fail "the backup's target $path on $BACKUP_HOST is full: $free KB are free" \
            "make room there (at least 256 MB), then run up again"
    fi
    status=0
    # This only reads; try_target checks writing, which has its own error.
    output=$(backup_output "$folder" "$CHECK_LIMIT" cat config --no-lock) || status=$?
    if [ "$status" -eq 0 ]; then
        TARGET_HAS=yes
    elif [ -n "$BACKUP_BUCKET" ] && grep -qiE 'bucket does not exist|NoSuchBucket' <<<"$output"; then
        # restic would create one, also for a misspelt name.
        fail "there is no bucket $BACKUP_BUCKET at $BACKUP_S3_HOST" \
            "create it there as a private bucket, or correct tailrack:backup.target; then run up again"
    elif [ -n "$BACKUP_BUCKET" ] && grep -qiE "$S3_REFUSES" <<<"$output"; then
        fail "the bucket $BACKUP_BUCKET at $BACKUP_S3_HOST refuses access: $(last_reason <<<"$output")" \
            "check access_key and secret_key in tailrack:backup, and the key's permissions for the bucket; then run up again"
    elif grep -q 'wrong password' <<<"$output"; then
        fail "the backups at the target were encrypted with another password" \
            "set their password (${BACKUP_PASSWORD:+pulumi config set --path --secret tailrack:backup.password}), or set tailrack:backup.target to an empty folder"
    elif ! grep -qiE 'is there a repository|no such file|does not exist|not exist' <<<"$output"; then
        fail "the backup's target cannot be used: $(last_reason <<<"$output")" \
            "check tailrack:backup.target and the logs of that target, then run up again"
    fi
}

# Fail if the target can be read but not written. `snapshots` writes a lock there.
try_target() {
    local output
    output=$(backup_output "$1" "$CHECK_LIMIT" snapshots --latest 1 --json) || fail \
        "cannot write to the backup's target: $(last_reason <<<"$output")" \
        "make room there, or check that the key in tailrack:backup may write and delete; then run up again"
}
