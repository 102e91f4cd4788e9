#!/bin/bash
# uses: users/clash
# Create the cluster's users with the same uid and gid on every node, and close the accounts of former users.
#
# USERS_LINES        `name uid gid`, one per line
# NFS_EXPORTS_MOUNT  where the share is mounted

users_machine() {
    local name uid gid uid_here group
    touch "$USERS_MADE"
    refuse_user_clashes
    while read -r name uid gid; do
        uid_here=$(id -u "$name" 2>/dev/null || :)
        if [ -n "$uid_here" ] && [ "$uid_here" != "$uid" ]; then
            remove_unused_account "$name"
            uid_here=''
        fi
        group=$(getent group "$gid" | cut -d: -f1 || :)
        # Record a name before it is created: leave and close_gone_users touch only recorded accounts and groups.
        if [ -z "$group" ]; then
            grep -qsxF "$name" "$GROUPS_MADE" || printf '%s\n' "$name" >>"$GROUPS_MADE"
            groupadd -g "$gid" "$name"
        fi
        if [ -z "$uid_here" ]; then
            grep -qxF "$name" "$USERS_MADE" || printf '%s\n' "$name" >>"$USERS_MADE"
            # Password '*' matches no password, but does not lock the account, so keys work.
            useradd -M -d "$NFS_EXPORTS_MOUNT/home/$name" -s /bin/bash -u "$uid" -g "$gid" -p '*' "$name"
            note "created user $name ($uid)"
        elif grep -qxF "$name" "$USERS_MADE"; then
            usermod -e '' "$name"
        fi
    done <<<"$USERS_LINES"
    close_gone_users
}

# Print the users whose accounts were created here and who are no longer in the config.
gone_users() { grep -vxFf <(cut -d' ' -f1 <<<"$USERS_LINES") "$USERS_MADE" || :; }

# An expired account refuses every login, also by key. Its files stay.
close_gone_users() {
    local name
    while read -r name; do
        id -u "$name" >/dev/null 2>&1 || continue
        usermod -e 1 "$name"
        pkill -KILL -u "$name" || note "$name has no process here"
        note "closed the account of $name"
    done < <(gone_users)
}
