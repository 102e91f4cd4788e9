#!/bin/bash
# The share on a node: mounted at first use, after the tailnet has its address, again after every restart.
#
# SHARE_PATH, SHARE_MOUNT   directory on the server, and where it appears here
: "${SHARE_PATH:?}" "${SHARE_MOUNT:?}"

share_answers() { timeout 20 stat -t "$SHARE_MOUNT/home" >/dev/null; }

ensure_share() {
    local server=$1 unit
    [ -x /sbin/mount.nfs4 ] || ensure_packages nfs-common
    unit=$(systemd-escape --path "$SHARE_MOUNT")
    mkdir -p "$SHARE_MOUNT"
    CHANGED=
    ensure_file "/etc/systemd/system/$unit.mount" 0644 root:root "[Unit]
Description=The cluster's share
After=tailrack-tailnet.service
Requires=tailrack-tailnet.service
# A server that is away for a while must not make the mount point give up for good.
StartLimitIntervalSec=0

[Mount]
What=$server:$SHARE_PATH
Where=$SHARE_MOUNT
Type=nfs4
Options=hard,nfsvers=4.2,_netdev
TimeoutSec=60"
    ensure_file "/etc/systemd/system/$unit.automount" 0644 root:root "[Unit]
Description=The cluster's share, mounted at first use

[Automount]
Where=$SHARE_MOUNT

[Install]
WantedBy=multi-user.target"
    systemctl daemon-reload
    if [ -n "$CHANGED" ]; then systemctl stop "$unit.automount" "$unit.mount"; fi
    systemctl enable -q "$unit.automount"
    if ! systemctl -q is-active "$unit.automount"; then
        systemctl reset-failed "$unit.automount" "$unit.mount" || note "nothing had failed"
        systemctl start "$unit.automount"
    fi
    wait_until 60 share_answers || fail "the share $server:$SHARE_PATH does not mount" \
        "see 'journalctl -u $unit.mount' on $HOST_NAME and the NFS server's log on the head node"
}
