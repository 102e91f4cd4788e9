#!/bin/bash
# uses: nfs_exports/foreign_exports
# Report a foreign nfs-ganesha, whose place the head node's server takes. Exports of the kernel's server stay beside
# ours.

nfs_exports_check_head() {
    if foreign_ganesha; then found_foreign "an NFS server's configuration ($GANESHA_FILE)"; fi
}
