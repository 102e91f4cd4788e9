#!/bin/bash
# uses: foreign_cluster/foreign
# What the machine serves by NFS to others than the cluster.

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
