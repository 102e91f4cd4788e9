#!/bin/bash
# uses: nfs_exports/note_previous_units nfs_exports/restore_previous_units
# Stop the portmapper and the lock daemon, which their packages start on all interfaces: NFS version 4 does not need
# them. Keep them if foreign NFS before version 4 does.
#
# NFS_EXPORTS_MOUNT   where the share is mounted
# NODE_OPEN_PORTS     ports that foreign NFS needs here, one per line (a fact of the check step)

nfs_exports_machine() {
    local unit older=false mount load_states unmasked=()
    local units=(rpcbind.socket rpcbind.service rpc-statd.service rpc-statd-notify.service nfs-ganesha-lock.service)
    if grep -qx 111 <<<"$NODE_OPEN_PORTS"; then
        note "this machine uses NFS before version 4: keeping rpcbind and rpc.statd, and ports ${NODE_OPEN_PORTS//$'\n'/, } open"
        # If that NFS is new, undo the masks that the cluster set before.
        restore_previous_units '^unit (rpc|nfs-ganesha-lock)'
        return
    fi
    # If a release that noted nothing was here, the masks are ours, not the owner's.
    mount=/etc/systemd/system/$(systemd-escape --path "$NFS_EXPORTS_MOUNT").mount
    if [ ! -e "$NFS_BEFORE" ] && [ -e "$mount" ]; then older=true; fi
    note_previous_units "$older" "${units[@]}"
    # Mask units that do not exist too, because a package that comes later must not start them.
    for unit in "${units[@]}"; do
        [ "/etc/systemd/system/$unit" -ef /dev/null ] || unmasked+=("$unit")
    done
    if [ ${#unmasked[@]} -gt 0 ]; then
        # Write the links without systemd, which would otherwise take all loaded units for outdated. It masks none of
        # several units if one of them fails.
        systemctl --root=/ mask -q "${unmasked[@]}" ||
            for unit in "${unmasked[@]}"; do systemctl --root=/ mask -q "$unit" || note "cannot mask $unit"; done
    fi
    # An interrupted step may not have reloaded systemd.
    load_states=$(systemctl show -P LoadState "${units[@]}")
    if [[ ${load_states//masked/} == *[a-z]* ]]; then reload_units_later; fi
    # Nor may it have stopped them. A missing unit cannot be stopped.
    systemctl stop -q "${units[@]}" || note "not all of ${units[*]} exist"
}
