#!/bin/bash
# uses: users/clash
# The cluster's users: the same uid and gid on every node, homes on the share.
#
# USERS_LINES        `name uid gid`, one a line
# NFS_EXPORTS_MOUNT  where the share is mounted

users_machine() {
    local name uid gid other
    refuse_user_clashes
    while read -r name uid gid; do
        other=$(getent group "$gid" | cut -d: -f1 || :)
        if [ -z "$other" ]; then groupadd -g "$gid" "$name"; fi
        if ! id -u "$name" >/dev/null 2>&1; then
            # Password '*': no password fits, but the account is not locked, so keys work.
            useradd -M -d "$NFS_EXPORTS_MOUNT/home/$name" -s /bin/bash -u "$uid" -g "$gid" -p '*' "$name"
            note "made user $name ($uid)"
        fi
    done <<<"$USERS_LINES"
}
