#!/bin/bash
# Homes on the share, and one SSH key a user that opens every node for them. Runs where the share's directory is.
#
# USERS_LINES        `name uid gid`, one a line
# NFS_EXPORTS_PATH   directory of the share

users_head() {
    local name uid gid home
    install -d -m 0755 "$NFS_EXPORTS_PATH" "$NFS_EXPORTS_PATH/home"
    # Like /tmp: everybody may put files there, nobody may remove another's.
    install -d -m 1777 "$NFS_EXPORTS_PATH/scratch"
    while read -r name uid gid; do
        home=$NFS_EXPORTS_PATH/home/$name
        if [ ! -d "$home" ]; then
            install -d -m 0700 -o "$uid" -g "$gid" "$home"
            cp -rT /etc/skel "$home"
            chown -R "$uid:$gid" "$home"
            note "made $home"
        fi
        install -d -m 0700 -o "$uid" -g "$gid" "$home/.ssh"
        if [ ! -s "$home/.ssh/id_ed25519.pub" ]; then
            rm -f "$home/.ssh/id_ed25519"
            ssh-keygen -q -t ed25519 -N '' -C "$name@cluster" -f "$home/.ssh/id_ed25519"
            chown "$uid:$gid" "$home/.ssh/id_ed25519" "$home/.ssh/id_ed25519.pub"
        fi
        touch "$home/.ssh/authorized_keys"
        grep -qxF "$(cat "$home/.ssh/id_ed25519.pub")" "$home/.ssh/authorized_keys" ||
            cat "$home/.ssh/id_ed25519.pub" >>"$home/.ssh/authorized_keys"
        chmod 0600 "$home/.ssh/authorized_keys"
        chown "$uid:$gid" "$home/.ssh/authorized_keys"
    done <<<"$USERS_LINES"
}
