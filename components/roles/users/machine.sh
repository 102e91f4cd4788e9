#!/bin/bash
# The cluster's users: the same uid and gid on every node, homes on the share.
#
# USERS_LINES        `name uid gid`, one a line
# NFS_EXPORTS_MOUNT  where the share is mounted

users_machine() {
    local name uid gid other
    while read -r name uid gid; do
        other=$(getent passwd "$uid" | cut -d: -f1 || :)
        [ -z "$other" ] || [ "$other" = "$name" ] || fail "uid $uid is $other here and should be $name" \
            "give $name another uid in tailrack:users, or remove $other from $HOST_NAME"
        other=$(getent group "$gid" | cut -d: -f1 || :)
        if [ -z "$other" ]; then groupadd -g "$gid" "$name"; fi
        if ! id -u "$name" >/dev/null 2>&1; then
            # Password '*': no password fits, but the account is not locked, so keys work.
            useradd -M -d "$NFS_EXPORTS_MOUNT/home/$name" -s /bin/bash -u "$uid" -g "$gid" -p '*' "$name"
            note "made user $name ($uid)"
        fi
        [ "$(id -u "$name")" = "$uid" ] || fail "user $name has uid $(id -u "$name") here and should have $uid" \
            "change the uid in tailrack:users, or 'usermod -u $uid $name' on $HOST_NAME"
    done <<<"$USERS_LINES"
}
