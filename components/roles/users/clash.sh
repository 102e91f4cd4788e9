#!/bin/bash
# uses: users/unused
# Conflicts between the cluster's users and the accounts that a machine already has.
#
# USERS_LINES         `name uid gid`, one per line
# NFS_EXPORTS_MOUNT   where the share is mounted, with the users' homes

# Accounts that tailrack created on this machine, one name per line.
USERS_MADE=$STATE_DIR/users
# Groups that tailrack created on this machine, one name per line.
GROUPS_MADE=$STATE_DIR/groups

# Print one line per conflict. An account of a directory service counts like one in /etc/passwd. An account with the right
# numbers and another home belongs to someone else: its jobs would start in a folder that other machines do not have.
user_clashes() {
    local name uid gid other its_uid its_gid its_home
    while read -r name uid gid; do
        other=$(getent passwd "$uid" | cut -d: -f1 || :)
        if [ -n "$other" ] && [ "$other" != "$name" ]; then echo "uid $uid is $other here and should be $name"; fi
        other=$(getent passwd "$name" || :)
        [ -n "$other" ] || continue
        IFS=: read -r _ _ its_uid its_gid _ its_home _ <<<"$other"
        if [ "$its_uid" != "$uid" ]; then
            grep -qsxF "$name" "$USERS_MADE" && account_is_unused "$name" ||
                echo "user $name has uid $its_uid here and should have $uid"
        elif grep -qsxF "$name" "$USERS_MADE"; then
            continue
        elif [ "${its_gid:-$gid}" != "$gid" ]; then
            echo "user $name has gid $its_gid here and should have $gid"
        elif [ "${its_home:-$NFS_EXPORTS_MOUNT/home/$name}" != "$NFS_EXPORTS_MOUNT/home/$name" ]; then
            echo "user $name is an existing account here, with the home $its_home, and should have $NFS_EXPORTS_MOUNT/home/$name"
        fi
    done <<<"$USERS_LINES"
}

# Print the first uid from 6001 up that is free on this machine and in the config.
free_uid() {
    local uid
    for uid in {6001..9999}; do
        if ! getent passwd "$uid" >/dev/null && ! getent group "$uid" >/dev/null && ! grep -qw "$uid" <<<"$USERS_LINES"; then
            break
        fi
    done
    echo "$uid"
}

refuse_user_clashes() {
    local clashes
    clashes=$(user_clashes)
    [ -z "$clashes" ] || fail "${clashes//$'\n'/; }" \
        "choose other uids in tailrack:users (from $(free_uid) up, which is free on $HOST_NAME) or other names, because a user of the \
cluster cannot be an account that $HOST_NAME already has; or remove or renumber ('usermod -u') these accounts on $HOST_NAME"
}
