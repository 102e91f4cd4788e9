#!/bin/bash
# uses: foreign_cluster/foreign
# What the machine has to do with others' NFS: what it serves to them, and mounts of theirs.

EXPORTS_DIR=/etc/exports.d
GANESHA_FILE=/etc/ganesha/ganesha.conf
OUR_GANESHA='^# Written by tailrack'

# Neither ours nor the package's.
ganesha_of_others() {
    [ -e "$GANESHA_FILE" ] && ! grep -q "$OUR_GANESHA" "$GANESHA_FILE" &&
        [[ $(dpkg-query -W -f='${Conffiles}' nfs-ganesha 2>/dev/null) != *"$(md5sum <"$GANESHA_FILE" | cut -d ' ' -f 1)"* ]]
}

# What this machine exports to others than the cluster, a line each.
exports_of_others() {
    local path
    for path in /etc/exports "$EXPORTS_DIR"/*.exports; do
        case $path in "$EXPORTS_DIR"/tailrack-*) ;; *) grep -vE '^[[:space:]]*(#|$)' "$path" 2>/dev/null || : ;; esac
    done
}

# Whether this machine mounts, or may mount, of others by NFS before version 4, or has another need of rpcbind: by what is
# mounted, fstab, units, automount's maps, NIS. `nfs` without a version in its options falls back to 3.
old_nfs_of_others() {
    [ -n "$(findmnt -n -t nfs -O vers=3)" ] || pgrep -x automount >/dev/null || pgrep -x ypbind >/dev/null ||
        compgen -G '/etc/systemd/system/*.wants/autofs.service' >/dev/null ||
        awk '$1 !~ /^#/ && $3 == "nfs" && $4 !~ /vers=4/ { found = 1 } END { exit !found }' /etc/fstab ||
        grep -qsE '^[^#]*[[:alnum:]]:/' /etc/auto.* /etc/auto.master.d/* ||
        grep -qsx 'Type=nfs' /etc/systemd/system/*.mount
}

# Ports of the cluster's that others need here, one a line: those of a server, and of a client before version 4, whom
# servers call back by rpcbind.
ports_of_others() {
    if [ -n "$(exports_of_others)" ] || ganesha_of_others; then
        printf '%s\n' 111 2049 20048
    elif old_nfs_of_others; then
        echo 111
    fi
}
