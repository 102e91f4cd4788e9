#!/bin/bash
# What the machine had of NFS before the cluster came: noted once, before the first change, for the day it leaves (leave.sh).
#
# NFS_EXPORTS_MOUNT   where the share is mounted

# Lines `unit NAME ENABLED ACTIVE` and `folder PATH`.
NFS_BEFORE=$STATE_DIR/nfs-before

# A unit, and whether a release that noted nothing has been at it.
note_unit_before() {
    local unit=$1 older=${2:-false} enabled active
    if grep -qs "^unit $unit " "$NFS_BEFORE"; then return; fi
    enabled=$(systemctl is-enabled "$unit" 2>/dev/null) || :
    active=$(systemctl is-active "$unit" 2>/dev/null) || :
    if [ "$older" = true ]; then enabled=disabled active=inactive; fi
    printf 'unit %s %s %s\n' "$unit" "${enabled:-not-found}" "${active:-inactive}" >>"$NFS_BEFORE"
}

# Make the folder for the share, and note that it was not there.
ensure_mount_point() {
    [ -d "$NFS_EXPORTS_MOUNT" ] || printf 'folder %s\n' "$NFS_EXPORTS_MOUNT" >>"$NFS_BEFORE"
    mkdir -p "$NFS_EXPORTS_MOUNT"
}
