#!/bin/bash
# uses: nfs_exports/note_previous_units
# Mount the share on a node: at first use, after the tailnet has its address, again after every restart.
#
# HEAD_ADDRESS                          the server
# NFS_EXPORTS_PATH, NFS_EXPORTS_MOUNT   folder on the server, and mount point on every node
# NFS_EXPORTS_RESTORED                  backup from which the head node was restored, empty without one

# Seconds for a mount, and for the step to wait for it. mount.nfs4 retries for two minutes on its own; the first path to
# a server may use a relay, and a starting server takes a while.
SHARE_WAIT=300

share_answers() { timeout 20 stat -t "$NFS_EXPORTS_MOUNT/home" >/dev/null; }

# Print the source of the mount, without systemd's own automount.
share_mounted() {
    { findmnt -rn -o SOURCE,FSTYPE --mountpoint "$NFS_EXPORTS_MOUNT" || :; } | awk '$2 != "autofs" {print $1}'
}

# Succeed if the server was replaced by another machine at the same address, which does not have the old handles.
share_stale() { [[ $(timeout 20 stat -t "$NFS_EXPORTS_MOUNT" "$NFS_EXPORTS_MOUNT/home" 2>&1) == *'Stale file handle'* ]]; }

nfs_exports_node() {
    local unit mounted why
    [ -x /sbin/mount.nfs4 ] || ensure_packages nfs-common
    unit=$(systemd-escape --path "$NFS_EXPORTS_MOUNT")
    ensure_mount_point
    # Other machines' root can create any file on the share, so no program from it may run with other rights here.
    ensure_file "/etc/systemd/system/$unit.mount" 0644 root:root "[Unit]
Description=The cluster's share
After=tailrack-tailnet.service
Requires=tailrack-tailnet.service
# A server that is down for a while must not make systemd give up the mount.
StartLimitIntervalSec=0

[Mount]
What=$HEAD_ADDRESS:$NFS_EXPORTS_PATH
Where=$NFS_EXPORTS_MOUNT
Type=nfs4
Options=hard,nosuid,nodev,nfsvers=4.2,_netdev
TimeoutSec=$SHARE_WAIT"
    ensure_file "/etc/systemd/system/$unit.automount" 0644 root:root "[Unit]
Description=The cluster's share, mounted at first use

[Automount]
Where=$NFS_EXPORTS_MOUNT

[Install]
WantedBy=multi-user.target"
    reload_units "$unit.mount" "$unit.automount"
    mounted=$(share_mounted)
    if [ -n "$mounted" ] && [ -n "$NFS_EXPORTS_RESTORED" ] && share_stale; then
        note "the mounted share is lost with its server: mounting it again"
        umount -l "$NFS_EXPORTS_MOUNT"
        systemctl stop "$unit.automount" "$unit.mount"
        mounted=''
    fi
    if [ "$mounted" = "$HEAD_ADDRESS:$NFS_EXPORTS_PATH" ]; then
        # Jobs may be using it: change the flags of an earlier release's mount in place.
        mount -i -o remount,bind,nosuid,nodev "$NFS_EXPORTS_MOUNT"
    elif [ -n "$mounted" ]; then
        systemctl stop "$unit.automount" "$unit.mount"
    fi
    enable_units "$unit.automount"
    if ! systemctl -q is-active "$unit.automount"; then
        systemctl reset-failed "$unit.automount" "$unit.mount" || note "no unit had failed"
        systemctl start "$unit.automount"
    fi
    wait_until "$SHARE_WAIT" share_answers && return
    why=$(systemctl show -P Result "$unit.mount") || why=unknown
    fail "the share $HEAD_ADDRESS:$NFS_EXPORTS_PATH does not mount at $NFS_EXPORTS_MOUNT within ${SHARE_WAIT}s \
(systemd says: $why)" "see 'journalctl -u $unit.mount' on $HOST_NAME and the NFS server's log on the head node"
}
