#!/bin/bash
# uses: nfs_exports/note_previous_units nfs_exports/restore_previous_units
# NFS version 4 needs no portmapper and no lock daemon, which their packages start on all interfaces. Where somebody else's
# NFS before version 4 needs them, they stay.
#
# NFS_EXPORTS_MOUNT   where the share is mounted
# NODE_OPEN_PORTS     ports that others' NFS needs here, one a line (a fact of the check step)

nfs_exports_machine() {
    local unit older=false mount known unmasked=()
    local units=(rpcbind.socket rpcbind.service rpc-statd.service rpc-statd-notify.service nfs-ganesha-lock.service)
    if grep -qx 111 <<<"$NODE_OPEN_PORTS"; then
        note "NFS before version 4 is in use here: rpcbind and rpc.statd stay, and ${NODE_OPEN_PORTS//$'\n'/, } open"
        # Where it has come since, what was masked for the cluster is so no more.
        as_before '^unit (rpc|nfs-ganesha-lock)'
        return
    fi
    # Masks of a release that noted nothing are ours, not the owner's.
    mount=/etc/systemd/system/$(systemd-escape --path "$NFS_EXPORTS_MOUNT").mount
    if [ ! -e "$NFS_BEFORE" ] && [ -e "$mount" ]; then older=true; fi
    note_units_before "$older" "${units[@]}"
    # Masked whether or not they are there: a package that comes later must not start them.
    for unit in "${units[@]}"; do
        [ "/etc/systemd/system/$unit" -ef /dev/null ] || unmasked+=("$unit")
    done
    if [ ${#unmasked[@]} -gt 0 ]; then
        # Past systemd, which would take all that it has loaded for outdated. Of several it masks none where it cannot mask one.
        systemctl --root=/ mask -q "${unmasked[@]}" ||
            for unit in "${unmasked[@]}"; do systemctl --root=/ mask -q "$unit" || note "$unit could not be masked"; done
    fi
    # Of a step that was cut off, it may not have been told yet.
    known=$(systemctl show -P LoadState "${units[@]}")
    if [[ ${known//masked/} == *[a-z]* ]]; then reload_units_later; fi
    # Nor may they have been stopped. One that is not there is none to stop.
    systemctl stop -q "${units[@]}" || note "not all of ${units[*]} are there"
}
