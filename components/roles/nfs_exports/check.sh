#!/bin/bash
# uses: nfs_exports/foreign_exports
# Whether the kernel can serve the share itself, whose NFS is here already, and whether the share's place is free.
#
# NFS_EXPORTS_MOUNT   where the share is to be mounted

kernel_knows() { grep -qw "$1" /proc/filesystems || modprobe -n "$1"; }

# The unit of an earlier `up` says that what is there is ours.
share_is_ours() { grep -qs "^Description=The cluster's share" "/etc/systemd/system/$(systemd-escape --path "$NFS_EXPORTS_MOUNT").mount"; }

# What is in the way of the share: a mount would be refused half way, and files would be hidden without a word.
in_the_way() {
    local found
    found=$(findmnt -rn -o SOURCE,FSTYPE --mountpoint "$NFS_EXPORTS_MOUNT" | tail -n 1 || :)
    [ -n "$found" ] || found=$(awk -v place="$NFS_EXPORTS_MOUNT" '$1 !~ /^#/ && $2 == place { print $1, $3 }' /etc/fstab || :)
    if [ -n "$found" ]; then
        printf 'a mount of others (%s)' "$found"
    elif [ -L "$NFS_EXPORTS_MOUNT" ]; then
        printf 'a link'
    elif [ -e "$NFS_EXPORTS_MOUNT" ] && [ ! -d "$NFS_EXPORTS_MOUNT" ]; then
        printf 'no folder'
    elif [ -d "$NFS_EXPORTS_MOUNT" ]; then
        found=$(find "$NFS_EXPORTS_MOUNT" -mindepth 1 -maxdepth 1 -printf '%f\n' | sort | head -n 3)
        [ -z "$found" ] || printf 'a folder with files (%s)' "${found//$'\n'/ }"
    fi
}

nfs_exports_check() {
    local way='' ports
    share_is_ours || way=$(in_the_way)
    [ -z "$way" ] || fail "$NFS_EXPORTS_MOUNT, where the share is to be mounted, is $way here" \
        "write another folder as tailrack:storage.mount, which is the same on all machines, or free $NFS_EXPORTS_MOUNT on $HOST_NAME"
    result kernel_nfs_server "$(yes_no kernel_knows nfsd)"
    ports=$(ports_of_others)
    result open_ports "[${ports//$'\n'/,}]"
}
