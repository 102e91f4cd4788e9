#!/bin/bash
# The share on a node: mounted at first use, after the tailnet has its address, again after every restart.
#
# HEAD_ADDRESS                          the server
# NFS_EXPORTS_PATH, NFS_EXPORTS_MOUNT   directory there, and where it appears here

share_answers() { timeout 20 stat -t "$NFS_EXPORTS_MOUNT/home" >/dev/null; }

nfs_exports_node() {
    local unit
    [ -x /sbin/mount.nfs4 ] || ensure_packages nfs-common
    unit=$(systemd-escape --path "$NFS_EXPORTS_MOUNT")
    mkdir -p "$NFS_EXPORTS_MOUNT"
    CHANGED=
    ensure_file "/etc/systemd/system/$unit.mount" 0644 root:root "[Unit]
Description=The cluster's share
After=tailrack-tailnet.service
Requires=tailrack-tailnet.service
# A server that is away for a while must not make the mount point give up for good.
StartLimitIntervalSec=0

[Mount]
What=$HEAD_ADDRESS:$NFS_EXPORTS_PATH
Where=$NFS_EXPORTS_MOUNT
Type=nfs4
Options=hard,nfsvers=4.2,_netdev
TimeoutSec=30"
    ensure_file "/etc/systemd/system/$unit.automount" 0644 root:root "[Unit]
Description=The cluster's share, mounted at first use

[Automount]
Where=$NFS_EXPORTS_MOUNT

[Install]
WantedBy=multi-user.target"
    systemctl daemon-reload
    if [ -n "$CHANGED" ]; then systemctl stop "$unit.automount" "$unit.mount"; fi
    systemctl enable -q "$unit.automount"
    if ! systemctl -q is-active "$unit.automount"; then
        systemctl reset-failed "$unit.automount" "$unit.mount" || note "nothing had failed"
        systemctl start "$unit.automount"
    fi
    wait_until 150 share_answers || fail "the share $HEAD_ADDRESS:$NFS_EXPORTS_PATH does not mount" \
        "see 'journalctl -u $unit.mount' on $HOST_NAME and the NFS server's log on the head node"
}
