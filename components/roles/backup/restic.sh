#!/bin/bash
# Run restic with a folder that contains the target's repository, password and keys. No secret is in its arguments
# (backup/restic.py).

# Run restic: folder, time limit in seconds, arguments.
backup_restic() {
    local folder=$1 limit=$2 options=()
    shift 2
    [ ! -e "$folder/ssh_config" ] || options=(-o "sftp.command=ssh -F $folder/ssh_config tailrack-backup-target -s sftp")
    (
        if [ -e "$folder/secret_key" ]; then
            AWS_ACCESS_KEY_ID=$(cat "$folder/access_key") AWS_SECRET_ACCESS_KEY=$(cat "$folder/secret_key")
            export AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY
        fi
        HOME=/root AWS_SHARED_CREDENTIALS_FILE=/dev/null exec timeout -k 10 "$limit" restic "${options[@]}" \
            --repo "$(cat "$folder/repository")" --password-file "$folder/password" \
            --cache-dir /var/cache/tailrack-backup "$@"
    )
}

# The same, with stderr. Keeps only the end of the output, because a hostile target can send any amount.
backup_output() { backup_restic "$@" 2>&1 | tail -c 65536; }

# Print a target's message as one safe line.
printable() {
    local line=${1//[^[:print:]]/}
    printf '%s\n' "${line:0:300}"
}

# Print the line of restic's output, on stdin, that has the reason. The lines after it repeat the place and the signal.
last_reason() {
    local line
    line=$({ grep -vE '^$|^(s3|sftp):|^Is there a repository|signal terminated|context canceled' || :; } | tail -n 1 |
        sed -E 's/^.* returned error, retrying after [^:]*: //')
    printable "${line:-it did not answer in time}"
}
