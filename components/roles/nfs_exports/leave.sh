#!/bin/bash
# The share is neither mounted nor served any more; what is in it stays.
#
# NFS_EXPORTS_MOUNT   where it is mounted

nfs_exports_leave() {
    local unit
    unit=$(systemd-escape --path "$NFS_EXPORTS_MOUNT")
    if [ -e "/etc/systemd/system/$unit.automount" ]; then
        systemctl disable -q --now "$unit.automount"
        systemctl stop "$unit.mount"
        rm -f "/etc/systemd/system/$unit.automount" "/etc/systemd/system/$unit.mount"
        systemctl daemon-reload
    fi
    # The head node's part: its server, where that was made by tailrack.
    if compgen -G "/etc/exports.d/tailrack-*.exports" >/dev/null; then
        rm -f /etc/exports.d/tailrack-*.exports
        # The kernel's server may have exports of others too.
        ! systemctl -q is-active nfs-server || exportfs -ra
    fi
    if [ -e /etc/nfs.conf.d/tailrack.conf ]; then
        rm -f /etc/nfs.conf.d/tailrack.conf
        systemctl disable -q --now nfs-server
    elif grep -qs '^# Written by tailrack' /etc/ganesha/ganesha.conf; then
        systemctl disable -q --now nfs-ganesha
        rm -f /etc/systemd/system/nfs-ganesha.service.d/tailrack.conf
    fi
}
