#!/bin/bash
# restic with what one folder says of the target: repository, password, and the way there. No secret in its words or
# environment.

# The folder, seconds that it may take, and what restic is to do.
backup_restic() {
    local folder=$1 limit=$2 way=()
    shift 2
    [ ! -e "$folder/ssh_config" ] || way=(-o "sftp.command=ssh -F $folder/ssh_config tailrack-backup-target -s sftp")
    HOME=/root AWS_SHARED_CREDENTIALS_FILE=$folder/credentials timeout -k 10 "$limit" restic "${way[@]}" \
        --repo "$(cat "$folder/repository")" --password-file "$folder/password" --cache-dir /var/cache/tailrack-backup "$@"
}

# The same, with the end of what it prints: whoever keeps the target may send words without end.
backup_words() { backup_restic "$@" 2>&1 | tail -c 65536; }

# A target's words as one line for people.
printable() {
    local line=${1//[^[:print:]]/}
    printf '%s\n' "${line:0:300}"
}

# The line of restic's words, on stdin, that says why: what comes after it names the place once more, and says that it was ended.
last_reason() {
    local line
    line=$({ grep -vE '^$|^(s3|sftp):|^Is there a repository|signal terminated|context canceled' || :; } | tail -n 1 |
        sed -E 's/^.* returned error, retrying after [^:]*: //')
    printable "${line:-it gave no answer in time}"
}
