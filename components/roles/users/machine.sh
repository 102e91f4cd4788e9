#!/bin/bash
# uses: users/clash
# The cluster's users: the same uid and gid on every node, homes on the share; and those who are users no more.
#
# USERS_LINES        `name uid gid`, one a line
# NFS_EXPORTS_MOUNT  where the share is mounted

# Names of the groups that were made here, one a line.
GROUPS_MADE=$STATE_DIR/groups

users_machine() {
    local name uid gid other
    touch "$USERS_MADE"
    refuse_user_clashes
    while read -r name uid gid; do
        other=$(getent group "$gid" | cut -d: -f1 || :)
        # Noted first, here and below: what is there and not noted would never be closed, and stay when the cluster leaves.
        if [ -z "$other" ]; then
            grep -qsxF "$name" "$GROUPS_MADE" || printf '%s\n' "$name" >>"$GROUPS_MADE"
            groupadd -g "$gid" "$name"
        fi
        if ! id -u "$name" >/dev/null 2>&1; then
            grep -qxF "$name" "$USERS_MADE" || printf '%s\n' "$name" >>"$USERS_MADE"
            # Password '*': no password fits, but the account is not locked, so keys work.
            useradd -M -d "$NFS_EXPORTS_MOUNT/home/$name" -s /bin/bash -u "$uid" -g "$gid" -p '*' "$name"
            note "made user $name ($uid)"
        elif grep -qxF "$name" "$USERS_MADE"; then
            usermod -e '' "$name"
        fi
    done <<<"$USERS_LINES"
    close_gone_users
}

# Those whose accounts were made here and who are in the config no more.
gone_users() { grep -vxFf <(cut -d' ' -f1 <<<"$USERS_LINES") "$USERS_MADE" || :; }

# An account that has ended takes no log-in, by key either. Its files stay, under its name.
close_gone_users() {
    local name
    while read -r name; do
        id -u "$name" >/dev/null 2>&1 || continue
        usermod -e 1 "$name"
        pkill -KILL -u "$name" || note "$name has no process here"
        note "closed the account of $name"
    done < <(gone_users)
}
