#!/bin/bash
# uses: nfs_exports/note_previous_units nfs_exports/close_share nfs_exports/server
# Serve the share on the head node, and mount its own folder where nodes mount the share.
#
# NFS_EXPORTS_PATH, NFS_EXPORTS_MOUNT   the folder, and where every node mounts it

nfs_exports_head() {
    if [ "$HEAD_KERNEL_NFS" = true ]; then
        note_previous_units "$(yes_no test -e "$KERNEL_SERVER_FILE")" nfs-server
        note_previous_units false nfsdcld.service fsidd.service proc-fs-nfsd.mount run-rpc_pipefs.mount
        ensure_packages nfs-kernel-server
    else
        note_previous_units "$(yes_no grep -q "$OUR_GANESHA" "$GANESHA_FILE")" nfs-ganesha
        ensure_packages nfs-ganesha nfs-ganesha-vfs
    fi
    result own_file_system "$(yes_no share_is_a_file_system)"
    ensure_local_mount
    # Before any node mounts it.
    close_share
    ensure_share_unit
    apply_exports
}

# Succeed if the share is all of its file system, wherever that is mounted: with a forged handle a client reaches every
# file of the file system, in the share or not (no_subtree_check).
share_is_a_file_system() {
    local device root a_device a_root a_target
    read -r device root < <(findmnt -rn -o MAJ:MIN,FSROOT --mountpoint "$NFS_EXPORTS_PATH" | tail -n 1) || return 1
    while read -r a_device a_root a_target; do
        # A mounted file, as in containers, gives no access to others.
        if [ "$a_device" = "$device" ] && [ -d "$a_target" ] && [[ ${a_root%/}/ != "${root%/}"/* ]]; then return 1; fi
    done < <(findmnt -rn -o MAJ:MIN,FSROOT,TARGET)
}

# Bind the folder to the mount point. It ends lazily, because users may be working there.
ensure_local_mount() {
    local unit
    unit=$(systemd-escape --path "$NFS_EXPORTS_MOUNT")
    ensure_mount_point
    ensure_file "/etc/systemd/system/$unit.mount" 0644 root:root "[Unit]
Description=The cluster's share, on the machine that serves it

[Mount]
What=$NFS_EXPORTS_PATH
Where=$NFS_EXPORTS_MOUNT
Type=none
Options=bind,nosuid,nodev
LazyUnmount=yes

[Install]
WantedBy=multi-user.target"
    reload_units "$unit.mount"
    enable_units --now "$unit.mount"
}

# Close the share at boot before logins and servers, and whenever the machine's accounts change.
ensure_share_unit() {
    ensure_file /etc/systemd/system/tailrack-share.service 0644 root:root "[Unit]
Description=Close the share to set-uid programs and to accounts outside the cluster
After=local-fs.target
RequiresMountsFor=$NFS_EXPORTS_PATH
Before=systemd-user-sessions.service nfs-server.service nfs-ganesha.service slurmd.service
# Several accounts may be created in a row.
StartLimitIntervalSec=0

[Service]
Type=oneshot
ExecStart=/usr/local/sbin/tailrack-share close

[Install]
WantedBy=multi-user.target"
    reload_units tailrack-share.service tailrack-share.path
    enable_units tailrack-share.service
    enable_units --now tailrack-share.path
}
