#!/bin/bash
# uses: nfs_exports/server
# The head node serves the share, and reads its own disk where nodes mount it.
#
# NFS_EXPORTS_PATH, NFS_EXPORTS_MOUNT   the directory, and where every node mounts it

nfs_exports_head() {
    if [ "$HEAD_KERNEL_NFS" = true ]; then
        ensure_packages nfs-kernel-server
    else
        ensure_packages nfs-ganesha nfs-ganesha-vfs
    fi
    ensure_share_here
    apply_exports
}

# The head node reads its own disk; it does not mount what it serves.
ensure_share_here() {
    local unit
    [ "$NFS_EXPORTS_MOUNT" != "$NFS_EXPORTS_PATH" ] || return 0
    unit=$(systemd-escape --path "$NFS_EXPORTS_MOUNT")
    mkdir -p "$NFS_EXPORTS_MOUNT"
    ensure_file "/etc/systemd/system/$unit.mount" 0644 root:root "[Unit]
Description=The cluster's share, on the machine that serves it

[Mount]
What=$NFS_EXPORTS_PATH
Where=$NFS_EXPORTS_MOUNT
Type=none
Options=bind

[Install]
WantedBy=multi-user.target"
    systemctl daemon-reload
    systemctl enable -q --now "$unit.mount"
}
