#!/bin/bash
# uses: nfs_exports/server
# A node's export: a file with its one address.
#
# NODE_NAME
# NODE_EXPORT   the line of its export (export.py)

nfs_exports_register() {
    take_lock
    ensure_file "$EXPORTS_DIR/tailrack-$NODE_NAME.exports" 0644 root:root "$NODE_EXPORT"
    apply_members
}

nfs_exports_register_forget() {
    rm -f "$EXPORTS_DIR/tailrack-$NODE_NAME.exports"
    apply_members
}
