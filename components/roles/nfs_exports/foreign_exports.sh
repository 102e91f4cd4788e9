#!/bin/bash
# uses: foreign_cluster/foreign
# Find foreign NFS on this machine: exports to others, and mounts from others.

EXPORTS_DIR=/etc/exports.d
GANESHA_FILE=/etc/ganesha/ganesha.conf
OUR_GANESHA='^# Written by tailrack'

# Succeed if nfs-ganesha's configuration is neither tailrack's nor the package's.
foreign_ganesha() {
    [ -e "$GANESHA_FILE" ] && ! grep -q "$OUR_GANESHA" "$GANESHA_FILE" &&
        [[ $(dpkg-query -W -f='${Conffiles}' nfs-ganesha 2>/dev/null) != *"$(md5sum <"$GANESHA_FILE" | cut -d ' ' -f 1)"* ]]
}

# Print this machine's exports to others than the cluster, one per line.
foreign_exports() {
    local path
    for path in /etc/exports "$EXPORTS_DIR"/*.exports; do
        case $path in "$EXPORTS_DIR"/tailrack-*) ;; *) grep -vE '^[[:space:]]*(#|$)' "$path" 2>/dev/null || : ;; esac
    done
}

# Succeed if this machine mounts, or may mount, NFS before version 4, or needs rpcbind for something else: according to
# mounts, fstab, units, automount's maps and NIS. `nfs` without a version in its options falls back to 3.
foreign_old_nfs() {
    [ -n "$(findmnt -n -t nfs -O vers=3)" ] || pgrep -x automount >/dev/null || pgrep -x ypbind >/dev/null ||
        compgen -G '/etc/systemd/system/*.wants/autofs.service' >/dev/null ||
        awk '$1 !~ /^#/ && $3 == "nfs" && $4 !~ /vers=4/ { found = 1 } END { exit !found }' /etc/fstab ||
        grep -qsE '^[^#]*[[:alnum:]]:/' /etc/auto.* /etc/auto.master.d/* ||
        grep -qsx 'Type=nfs' /etc/systemd/system/*.mount
}

# Print the cluster's ports that foreign NFS needs here, one per line: those of a server, and of a client before version
# 4, which servers call back through rpcbind.
foreign_nfs_ports() {
    if [ -n "$(foreign_exports)" ] || foreign_ganesha; then
        printf '%s\n' 111 2049 20048
    elif foreign_old_nfs; then
        echo 111
    fi
}
