#!/bin/bash
# Tell a node's program where the share has the names.
#
# NFS_EXPORTS_MOUNT   the share

names_node() { ensure_file "$STATE_DIR/names-from" 0644 root:root "$NFS_EXPORTS_MOUNT/.tailrack/names"; }
