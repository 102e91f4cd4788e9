#!/bin/bash
# uses: nfs_exports/restore_previous_units
# Stop mounting and serving the share, keep its files, and restore the machine's earlier NFS units.
#
# NFS_EXPORTS_MOUNT   where the share is mounted

nfs_exports_leave() {
    leave_share_mounts
    leave_nfs_server
    restore_previous_units .
    rm -f /var/lib/tailrack/nfs-before
}

leave_share_mounts() {
    local unit
    unit=$(systemd-escape --path "$NFS_EXPORTS_MOUNT")
    if [ -e "/etc/systemd/system/$unit.automount" ]; then
        systemctl disable -q --now "$unit.automount"
        systemctl stop "$unit.mount"
    elif [ -e "/etc/systemd/system/$unit.mount" ]; then
        # On the head node users may be working there, on a disk that stays.
        systemctl disable -q "$unit.mount"
        # After a boot it is mounted twice: tailrack-share's mount over the folder appears here too.
        for _ in 1 2 3 4; do ! mountpoint -q "$NFS_EXPORTS_MOUNT" || umount -l "$NFS_EXPORTS_MOUNT"; done
    fi
    rm -f "/etc/systemd/system/$unit.automount" "/etc/systemd/system/$unit.mount"
    if [ -e /etc/systemd/system/tailrack-share.path ]; then
        # Stop the units that react to account changes first: otherwise their start job replaces the stop job, which
        # then fails ("Job for tailrack-share.service canceled").
        systemctl disable -q --now tailrack-share.path
        systemctl stop tailrack-share-again.service
        systemctl disable -q --now tailrack-share.service
        [ ! -e /etc/tailrack/share ] || /usr/local/sbin/tailrack-share open
        rm -f /etc/systemd/system/tailrack-share{.path,.service,-again.service} /usr/local/sbin/tailrack-share /etc/tailrack/share
    fi
    systemctl daemon-reload
}

leave_nfs_server() {
    # On the head node: its server, if tailrack set it up.
    if compgen -G "/etc/exports.d/tailrack-*.exports" >/dev/null; then
        rm -f /etc/exports.d/tailrack-*.exports
        # The kernel's server may have other exports too.
        ! systemctl -q is-active nfs-server || exportfs -ra
    fi
    if [ -e /etc/nfs.conf.d/tailrack.conf ]; then
        rm -f /etc/nfs.conf.d/tailrack.conf
        systemctl disable -q --now nfs-server
        stop_server_units
    elif grep -qs '^# Written by tailrack' /etc/ganesha/ganesha.conf; then
        systemctl disable -q --now nfs-ganesha
        rm -f /etc/systemd/system/nfs-ganesha.service.d/tailrack{,-restart}.conf /etc/ganesha/ganesha.conf
        [ ! -e /etc/ganesha/ganesha.conf.tailrack-before ] ||
            mv -fT /etc/ganesha/ganesha.conf.tailrack-before /etc/ganesha/ganesha.conf
    fi
}

# Stop units that the kernel's server started, unless they ran before.
stop_server_units() {
    local unit
    for unit in fsidd.service nfsdcld.service proc-fs-nfsd.mount run-rpc_pipefs.mount; do
        ! grep -Eqs "^unit $unit \S+ (inactive|failed)$" /var/lib/tailrack/nfs-before ||
            systemctl stop "$unit" || echo "$unit is still in use" >&2
    done
}
