#!/bin/bash
# uses: nfs_exports/restore_previous_units
# The share is neither mounted nor served any more; what is in it stays. What the machine had of NFS before, it has again.
#
# NFS_EXPORTS_MOUNT   where it is mounted

nfs_exports_leave() {
    leave_share_mounts
    leave_nfs_server
    as_before .
    rm -f /var/lib/tailrack/nfs-before
}

leave_share_mounts() {
    local unit
    unit=$(systemd-escape --path "$NFS_EXPORTS_MOUNT")
    if [ -e "/etc/systemd/system/$unit.automount" ]; then
        systemctl disable -q --now "$unit.automount"
        systemctl stop "$unit.mount"
    elif [ -e "/etc/systemd/system/$unit.mount" ]; then
        # The head node's own: somebody may be at work there, on a disk that stays.
        systemctl disable -q "$unit.mount"
        # After a boot it lies there twice: what tailrack-share mounts over the directory shows here too.
        for _ in 1 2 3 4; do ! mountpoint -q "$NFS_EXPORTS_MOUNT" || umount -l "$NFS_EXPORTS_MOUNT"; done
    fi
    rm -f "/etc/systemd/system/$unit.automount" "/etc/systemd/system/$unit.mount"
    if [ -e /etc/systemd/system/tailrack-share.path ]; then
        # What looks anew after an account has come or gone first: a start that it asks for takes a stop's place, which then
        # fails ("Job for tailrack-share.service canceled").
        systemctl disable -q --now tailrack-share.path
        systemctl stop tailrack-share-again.service
        systemctl disable -q --now tailrack-share.service
        [ ! -e /etc/tailrack/share ] || /usr/local/sbin/tailrack-share open
        rm -f /etc/systemd/system/tailrack-share{.path,.service,-again.service} /usr/local/sbin/tailrack-share /etc/tailrack/share
    fi
    systemctl daemon-reload
}

leave_nfs_server() {
    # The head node's part: its server, where that was made by tailrack.
    if compgen -G "/etc/exports.d/tailrack-*.exports" >/dev/null; then
        rm -f /etc/exports.d/tailrack-*.exports
        # The kernel's server may have exports of others too.
        ! systemctl -q is-active nfs-server || exportfs -ra
    fi
    if [ -e /etc/nfs.conf.d/tailrack.conf ]; then
        rm -f /etc/nfs.conf.d/tailrack.conf
        systemctl disable -q --now nfs-server
        leave_what_it_started
    elif grep -qs '^# Written by tailrack' /etc/ganesha/ganesha.conf; then
        systemctl disable -q --now nfs-ganesha
        rm -f /etc/systemd/system/nfs-ganesha.service.d/tailrack{,-restart}.conf /etc/ganesha/ganesha.conf
        [ ! -e /etc/ganesha/ganesha.conf.tailrack-before ] ||
            mv -fT /etc/ganesha/ganesha.conf.tailrack-before /etc/ganesha/ganesha.conf
    fi
}

# What came up with the kernel's server goes with it, where it did not run before.
leave_what_it_started() {
    local unit
    for unit in fsidd.service nfsdcld.service proc-fs-nfsd.mount run-rpc_pipefs.mount; do
        ! grep -Eqs "^unit $unit \S+ (inactive|failed)$" /var/lib/tailrack/nfs-before ||
            systemctl stop "$unit" || echo "$unit is in use still" >&2
    done
}
