#!/bin/bash
# NFS version 4 needs no portmapper and no lock daemon, which their packages start on all interfaces. Where somebody else's
# NFS before version 4 needs them, they stay.

others_need_them() {
    grep -qsv '^[[:space:]]*\(#\|$\)' /etc/exports || [ -n "$(findmnt -n -t nfs -O vers=3)" ]
}

nfs_exports_machine() {
    local unit
    if others_need_them; then
        note "NFS before version 4 is in use here: rpcbind and rpc.statd stay"
        return
    fi
    for unit in rpcbind.socket rpcbind.service rpc-statd.service rpc-statd-notify.service nfs-ganesha-lock.service; do
        # Masked whether or not it is there: a package that comes later must not start it.
        systemctl mask -q --now "$unit" || note "$unit could not be masked"
    done
}
