#!/bin/bash
# uses: nfs_exports/note_previous_units nfs_exports/close_share nfs_exports/server
# The head node serves the share, and reads its own disk where nodes mount it.
#
# NFS_EXPORTS_PATH, NFS_EXPORTS_MOUNT   the directory, and where every node mounts it

nfs_exports_head() {
    if [ "$HEAD_KERNEL_NFS" = true ]; then
        note_units_before "$(yes_no test -e "$KERNEL_SERVER_FILE")" nfs-server
        note_units_before false nfsdcld.service fsidd.service proc-fs-nfsd.mount run-rpc_pipefs.mount
        ensure_packages nfs-kernel-server
    else
        note_units_before "$(yes_no grep -q "$OUR_GANESHA" "$GANESHA_FILE")" nfs-ganesha
        ensure_packages nfs-ganesha nfs-ganesha-vfs
    fi
    result own_file_system "$(yes_no share_is_a_file_system)"
    ensure_share_here
    # Before anybody mounts it.
    close_share
    keep_share_closed
    apply_exports
}

# Whether the share is all that there is of its file system, wherever that is mounted: by a forged handle a client reaches
# every file of it, in the share or not (no_subtree_check).
share_is_a_file_system() {
    local device root a_device a_root a_target
    read -r device root < <(findmnt -rn -o MAJ:MIN,FSROOT --mountpoint "$NFS_EXPORTS_PATH" | tail -n 1) || return 1
    while read -r a_device a_root a_target; do
        # A file alone, as containers have them, is no way to the others.
        if [ "$a_device" = "$device" ] && [ -d "$a_target" ] && [[ ${a_root%/}/ != "${root%/}"/* ]]; then return 1; fi
    done < <(findmnt -rn -o MAJ:MIN,FSROOT,TARGET)
}

# The head node reads its own disk; it does not mount what it serves. Whoever works there is not in the way of its end.
ensure_share_here() {
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

# Before logins and servers at boot too, and whenever somebody gets an account here.
keep_share_closed() {
    ensure_file /etc/systemd/system/tailrack-share.service 0644 root:root "[Unit]
Description=No set-uid programs on the share, and nobody but the cluster's users
After=local-fs.target
RequiresMountsFor=$NFS_EXPORTS_PATH
Before=systemd-user-sessions.service nfs-server.service nfs-ganesha.service slurmd.service
# Accounts may be made one after the other.
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
