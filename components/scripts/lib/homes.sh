#!/bin/bash
# Homes on the share, and one SSH key a user that opens every node for them. Runs where the share's directory is.
#
# USERS, SHARE_PATH
: "${USERS:?}" "${SHARE_PATH:?}"

ensure_homes() {
    local name uid gid home
    install -d -m 0755 "$SHARE_PATH" "$SHARE_PATH/home"
    # Like /tmp: everybody may put files there, nobody may remove another's.
    install -d -m 1777 "$SHARE_PATH/scratch"
    while read -r name uid gid; do
        home=$SHARE_PATH/home/$name
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
    done <<<"$USERS"
}

# The head node reads its own disk; it does not mount what it serves.
ensure_share_here() {
    local unit
    [ "$SHARE_MOUNT" != "$SHARE_PATH" ] || return 0
    unit=$(systemd-escape --path "$SHARE_MOUNT")
    mkdir -p "$SHARE_MOUNT"
    ensure_file "/etc/systemd/system/$unit.mount" 0644 root:root "[Unit]
Description=The cluster's share, on the machine that serves it

[Mount]
What=$SHARE_PATH
Where=$SHARE_MOUNT
Type=none
Options=bind

[Install]
WantedBy=multi-user.target"
    systemctl daemon-reload
    systemctl enable -q --now "$unit.mount"
}
