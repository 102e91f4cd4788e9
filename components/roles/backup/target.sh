#!/bin/bash
# uses: backup/restic
# Where backups go, as this machine reaches it: who and where, what it shows itself by, and the keys. Looked at before
# anything is changed.
#
# BACKUP_REPOSITORY                     as restic has it; empty where there are no backups
# BACKUP_HOST, BACKUP_USER, BACKUP_PORT, BACKUP_HOST_KEY   of a machine; empty for S3
# BACKUP_PRIVATE_KEY, BACKUP_PASSWORD, BACKUP_SECRET_KEY   secret
# BACKUP_ACCESS_KEY, BACKUP_BUCKET, BACKUP_S3_HOST   of S3
# BACKUP_CLUSTER                        the cluster's name
# NFS_EXPORTS_PATH, NFS_EXPORTS_MOUNT   the share

TARGET=tailrack-backup-target
# Kilobytes that have to be free there.
ROOM_NEEDED=262144

# Words of S3 for a key that it does not know, that is wrong, or that may not do this.
S3_REFUSES='access ?denied|forbidden|signature we calculated|SignatureDoesNotMatch|access key id|InvalidAccessKeyId'

# Seconds that restic may take for what is a moment's work: it tries for a quarter of an hour what S3 has refused.
CHECK_LIMIT=45

# All that restic and ssh need, in a folder that root alone can open: the folder.
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

# restic makes the folder as the account there makes folders, which others can mostly open.
close_target() {
    local said
    [ -n "$BACKUP_HOST" ] || return 0
    said=$(printf 'chmod 700 %s\n' "${BACKUP_REPOSITORY##*:}" | timeout 60 sftp -F "$1/ssh_config" -b - "$TARGET" 2>&1 | tail -c 65536) ||
        fail "the backup's target cannot be closed to others there: $(printable "$(tail -n 1 <<<"$said")")" \
            "run 'chmod 700 ${BACKUP_REPOSITORY##*:}' on $BACKUP_HOST, then run up again"
}

# Stop with one sentence where backups cannot go there: nobody answers, the folder is open to others there or on the share,
# the disk is full, or the password is another one. Leaves in TARGET_HAS whether there is a repository already.
check_target() {
    local folder=$1 said status=0 path real mode free
    TARGET_HAS=no
    if [ -n "$BACKUP_HOST" ]; then
        path=${BACKUP_REPOSITORY##*:}
        said=$(printf -- '-cd %s\npwd\n-ls -lan %s\n-df %s\n' "$path" "$path" "$path" |
            timeout 60 sftp -F "$folder/ssh_config" -b - "$TARGET" 2>&1 | head -c 1048576) || status=$?
        [ "$status" -eq 0 ] || fail "the backup's target $BACKUP_USER@$BACKUP_HOST does not let us in: $(printable "$(tail -n 1 <<<"$said")")" \
            "see that $BACKUP_HOST answers SSH at port $BACKUP_PORT, and host_key and private_key in tailrack:backup; then run up again"
        real=$(sed -n 's/^Remote working directory: //p' <<<"$said" | head -n 1)
        case $real/ in
        "$NFS_EXPORTS_MOUNT"/* | "$NFS_EXPORTS_PATH"/*) fail "the backup's target $path is $(printable "$real") there, which is on the share" \
            "write a folder of $BACKUP_HOST's own disk in tailrack:backup.target" ;;
        esac
        mode=$(sed -nE '/^d.*[ \/]\.$/ { s/ .*//p; q }' <<<"$said")
        [[ -z $mode || $mode == d???------* ]] || fail "the backup's target $path on $BACKUP_HOST can be opened by others there ($(printable "$mode"))" \
            "run 'chmod 700 $path' on $BACKUP_HOST, or name a folder that is not there yet; then run up again"
        free=$(awk '/Avail/ { for (i = 1; i <= NF; i++) if ($i == "Avail") at = i; next } at && $at ~ /^[0-9]+$/ { print $at; exit }' <<<"$said")
        [ -z "$free" ] || [ "$free" -ge "$ROOM_NEEDED" ] || fail "the backup's target $path on $BACKUP_HOST is full: $free KB are free" \
            "make room there (256 MB at least), then run up again"
    fi
    status=0
    # Read and nothing else: whether anything can be written there is another question, with another answer (try_target).
    said=$(backup_words "$folder" "$CHECK_LIMIT" cat config --no-lock) || status=$?
    if [ "$status" -eq 0 ]; then
        TARGET_HAS=yes
    elif [ -n "$BACKUP_BUCKET" ] && grep -qiE 'bucket does not exist|NoSuchBucket' <<<"$said"; then
        # restic would make one, under whatever name was meant for another.
        fail "there is no bucket $BACKUP_BUCKET at $BACKUP_S3_HOST" \
            "make it there, open to nobody else, or correct tailrack:backup.target; then run up again"
    elif [ -n "$BACKUP_BUCKET" ] && grep -qiE "$S3_REFUSES" <<<"$said"; then
        fail "the bucket $BACKUP_BUCKET at $BACKUP_S3_HOST does not let us in: $(last_reason <<<"$said")" \
            "see access_key and secret_key in tailrack:backup, and what the key may do with the bucket; then run up again"
    elif grep -q 'wrong password' <<<"$said"; then
        fail "what is at the backup's target was encrypted with another password" \
            "set the one that it was made with (${BACKUP_PASSWORD:+pulumi config set --path --secret tailrack:backup.password}), or name an empty folder in tailrack:backup.target"
    elif ! grep -qiE 'is there a repository|no such file|does not exist|not exist' <<<"$said"; then
        fail "the backup's target cannot be used: $(last_reason <<<"$said")" \
            "see tailrack:backup.target and what the place it names says, then run up again"
    fi
}

# Stop where an archive can be read and nothing can be added: restic notes at the target that it is at work.
try_target() {
    local said
    said=$(backup_words "$1" "$CHECK_LIMIT" snapshots --latest 1 --json) || fail \
        "nothing can be written at the backup's target: $(last_reason <<<"$said")" \
        "make room there, or see that the key in tailrack:backup may write and delete; then run up again"
}
