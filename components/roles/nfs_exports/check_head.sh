#!/bin/bash
# uses: nfs_exports/foreign_exports
# What the head node's NFS server would be in the way of. Exports by the kernel's server are not: they stay beside ours.

nfs_exports_check_head() {
    if ganesha_of_others; then found_foreign "an NFS server's configuration ($GANESHA_FILE)"; fi
}
