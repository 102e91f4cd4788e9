#!/bin/bash
# Names and addresses of the cluster's machines as they joined, `members/<node>/address`: all that names come from. What a
# machine calls itself in the tailnet is nobody's name.
#
# NFS_EXPORTS_PATH   the share, from where root of a node can read it and not write

NAMES_LIST=$STATE_DIR/names

keep_name() { ensure_file "$STATE_DIR/members/$1/address" 0644 root:root "$2"; }

# The head node knows the names at once, the nodes when they look (templates/tailrack-names). Under the lock.
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
    # A head node that was never finished may have no names yet.
    [ ! -x /usr/local/sbin/tailrack-names ] || /usr/local/sbin/tailrack-names
}
