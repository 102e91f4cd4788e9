#!/bin/bash
# Where a node finds the names of the others, once the share is there.
#
# NFS_EXPORTS_MOUNT   the share

names_node() { ensure_file "$STATE_DIR/names-from" 0644 root:root "$NFS_EXPORTS_MOUNT/.tailrack/names"; }
