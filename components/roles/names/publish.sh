#!/bin/bash
# Publish the names and addresses with which the cluster's machines joined, from `members/<node>/address`. Names that
# machines choose in the tailnet are not used.
#
# NFS_EXPORTS_PATH   the share, which root of a node can read but not write

NAMES_LIST=$STATE_DIR/names

keep_name() { ensure_file "$STATE_DIR/members/$1/address" 0644 root:root "$2"; }

# Write the list. The head node uses it at once, nodes when they check (templates/tailrack-names). Call with the lock.
publish_names() {
    local list=''
    if compgen -G "$STATE_DIR/members/*/address" >/dev/null; then
        list=$(awk '{ count = split(FILENAME, part, "/"); print $1, part[count - 1] }' "$STATE_DIR"/members/*/address)
    fi
    ensure_file "$NAMES_LIST" 0644 root:root "$list"
    if [ -d "$NFS_EXPORTS_PATH" ]; then
        install -d -m 0755 "$NFS_EXPORTS_PATH/.tailrack"
        ensure_file "$NFS_EXPORTS_PATH/.tailrack/names" 0644 root:root "$list"
    fi
    # An unfinished head node may not have the program yet.
    [ ! -x /usr/local/sbin/tailrack-names ] || /usr/local/sbin/tailrack-names
}
