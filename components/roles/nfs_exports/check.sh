#!/bin/bash
# uses: nfs_exports/foreign_exports
# Check whether the kernel can serve the share, which foreign NFS is in use, and whether the share's mount point is
# free.
#
# NFS_EXPORTS_MOUNT   where the share will be mounted

kernel_knows() { grep -qw "$1" /proc/filesystems || modprobe -n "$1"; }

# Succeed if an earlier `up` has written the mount unit.
share_is_ours() { grep -qs "^Description=The cluster's share" "/etc/systemd/system/$(systemd-escape --path "$NFS_EXPORTS_MOUNT").mount"; }

# Print what occupies the mount point: a foreign mount would make the step fail halfway, and files would be hidden
# silently.
mount_point_conflict() {
    local entry
    entry=$(findmnt -rn -o SOURCE,FSTYPE --mountpoint "$NFS_EXPORTS_MOUNT" | tail -n 1 || :)
    [ -n "$entry" ] || entry=$(awk -v place="$NFS_EXPORTS_MOUNT" '$1 !~ /^#/ && $2 == place { print $1, $3 }' /etc/fstab || :)
    if [ -n "$entry" ]; then
        printf 'another mount (%s)' "$entry"
    elif [ -L "$NFS_EXPORTS_MOUNT" ]; then
        printf 'a link'
    elif [ -e "$NFS_EXPORTS_MOUNT" ] && [ ! -d "$NFS_EXPORTS_MOUNT" ]; then
        printf 'not a folder'
    elif [ -d "$NFS_EXPORTS_MOUNT" ]; then
        entry=$(find "$NFS_EXPORTS_MOUNT" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | head -n 3)
        [ -z "$entry" ] || printf 'a folder with files (%s)' "${entry//$'\n'/ }"
    fi
}

nfs_exports_check() {
    local conflict='' ports
    share_is_ours || conflict=$(mount_point_conflict)
    [ -z "$conflict" ] || fail "the share cannot be mounted at $NFS_EXPORTS_MOUNT, which is $conflict on this machine" \
        "set tailrack:storage.mount to another folder, for all machines, or free $NFS_EXPORTS_MOUNT on $HOST_NAME"
    result kernel_nfs_server "$(yes_no kernel_knows nfsd)"
    ports=$(foreign_nfs_ports)
    result open_ports "[${ports//$'\n'/,}]"
}
