#!/bin/bash
# What stands against users of the cluster on a machine.
#
# USERS_LINES         `name uid gid`, one a line
# NFS_EXPORTS_MOUNT   where the share is mounted, with their homes

# Names of the accounts that were made here, one a line.
USERS_MADE=$STATE_DIR/users

# A directory service has accounts as /etc/passwd has. One of the same name and numbers that has another home is somebody's
# own: jobs would start in a folder that other machines do not have, and what they write would stay on a local disk.
user_clashes() {
    local name uid gid other its_uid its_gid its_home
    while read -r name uid gid; do
        other=$(getent passwd "$uid" | cut -d: -f1 || :)
        if [ -n "$other" ] && [ "$other" != "$name" ]; then echo "uid $uid is $other here and should be $name"; fi
        other=$(getent passwd "$name" || :)
        [ -n "$other" ] || continue
        IFS=: read -r _ _ its_uid its_gid _ its_home _ <<<"$other"
        if [ "$its_uid" != "$uid" ]; then
            echo "user $name has uid $its_uid here and should have $uid"
        elif grep -qsxF "$name" "$USERS_MADE"; then
            continue
        elif [ "${its_gid:-$gid}" != "$gid" ]; then
            echo "user $name has gid $its_gid here and should have $gid"
        elif [ "${its_home:-$NFS_EXPORTS_MOUNT/home/$name}" != "$NFS_EXPORTS_MOUNT/home/$name" ]; then
            echo "user $name is somebody's own account here, with the home $its_home, and should have $NFS_EXPORTS_MOUNT/home/$name"
        fi
    done <<<"$USERS_LINES"
}

# The first uid from 6001 up that no account and no group has here, and no user of the config.
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
        "choose other uids in tailrack:users (from $(free_uid) up, which is free on $HOST_NAME), or other names: the cluster's users \
are accounts of its own, the owner's of a machine cannot be one; or remove or renumber ('usermod -u') these accounts on $HOST_NAME"
}
