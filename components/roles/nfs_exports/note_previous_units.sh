#!/bin/bash
# Note the machine's NFS units once, before the first change, so that leave.sh can restore them.
#
# NFS_EXPORTS_MOUNT   where the share is mounted

# Lines `unit NAME ENABLED ACTIVE` and `folder PATH`.
NFS_BEFORE=$STATE_DIR/nfs-before

# Note units: true if a release that noted nothing has changed them, units.
note_previous_units() {
    local older=$1 unit output state enabled active noted='' unnoted=()
    shift
    [ ! -e "$NFS_BEFORE" ] || noted=$(<"$NFS_BEFORE")
    for unit in "$@"; do
        [[ $'\n'$noted == *$'\n'"unit $unit "* ]] || unnoted+=("$unit")
    done
    [ ${#unnoted[@]} -gt 0 ] || return 0
    # Some lines per unit, in the units' order, with empty lines between.
    output=$(systemctl show -p UnitFileState -p ActiveState "${unnoted[@]}")
    for unit in "${unnoted[@]}"; do
        state=$'\n'${output%%$'\n\n'*}$'\n' output=${output#*$'\n\n'}
        enabled=${state#*$'\nUnitFileState='} active=${state#*$'\nActiveState='}
        enabled=${enabled%%$'\n'*} active=${active%%$'\n'*}
        if [ "$older" = true ]; then enabled=disabled active=inactive; fi
        printf 'unit %s %s %s\n' "$unit" "${enabled:-not-found}" "${active:-inactive}" >>"$NFS_BEFORE"
    done
}

# Create the share's mount point, and note that it did not exist.
ensure_mount_point() {
    [ -d "$NFS_EXPORTS_MOUNT" ] || printf 'folder %s\n' "$NFS_EXPORTS_MOUNT" >>"$NFS_BEFORE"
    mkdir -p "$NFS_EXPORTS_MOUNT"
}
