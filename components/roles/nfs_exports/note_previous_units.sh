#!/bin/bash
# What the machine had of NFS before the cluster came: noted once, before the first change, for the day it leaves (leave.sh).
#
# NFS_EXPORTS_MOUNT   where the share is mounted

# Lines `unit NAME ENABLED ACTIVE` and `folder PATH`.
NFS_BEFORE=$STATE_DIR/nfs-before

# Whether a release that noted nothing has been at them, and units.
note_units_before() {
    local older=$1 unit said state enabled active noted='' unnoted=()
    shift
    [ ! -e "$NFS_BEFORE" ] || noted=$(<"$NFS_BEFORE")
    for unit in "$@"; do
        [[ $'\n'$noted == *$'\n'"unit $unit "* ]] || unnoted+=("$unit")
    done
    [ ${#unnoted[@]} -gt 0 ] || return 0
    # Some lines a unit, in their order, and an empty one between.
    said=$(systemctl show -p UnitFileState -p ActiveState "${unnoted[@]}")
    for unit in "${unnoted[@]}"; do
        state=$'\n'${said%%$'\n\n'*}$'\n' said=${said#*$'\n\n'}
        enabled=${state#*$'\nUnitFileState='} active=${state#*$'\nActiveState='}
        enabled=${enabled%%$'\n'*} active=${active%%$'\n'*}
        if [ "$older" = true ]; then enabled=disabled active=inactive; fi
        printf 'unit %s %s %s\n' "$unit" "${enabled:-not-found}" "${active:-inactive}" >>"$NFS_BEFORE"
    done
}

# Make the folder for the share, and note that it was not there.
ensure_mount_point() {
    [ -d "$NFS_EXPORTS_MOUNT" ] || printf 'folder %s\n' "$NFS_EXPORTS_MOUNT" >>"$NFS_BEFORE"
    mkdir -p "$NFS_EXPORTS_MOUNT"
}
