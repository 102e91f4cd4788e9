#!/bin/bash
# uses: nfs_exports/before nfs_exports/as_before
# NFS version 4 needs no portmapper and no lock daemon, which their packages start on all interfaces. Where somebody else's
# NFS before version 4 needs them, they stay.
#
# NFS_EXPORTS_MOUNT   where the share is mounted
# NODE_OPEN_PORTS     ports that others' NFS needs here, one a line (a fact of the gate)

nfs_exports_machine() {
    local unit older=false mount
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
    for unit in "${units[@]}"; do note_unit_before "$unit" "$older"; done
    # Masked whether or not they are there: a package that comes later must not start them. In one call, since systemd reads all
    # units anew for each.
    if systemctl mask -q --now "${units[@]}"; then return; fi
    # Of several it stops none where it cannot mask one.
    for unit in "${units[@]}"; do systemctl mask -q --now "$unit" || note "$unit could not be masked"; done
}
