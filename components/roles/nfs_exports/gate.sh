#!/bin/bash
# Whether the kernel can serve the share itself.

kernel_knows() { grep -qw "$1" /proc/filesystems || modprobe -n "$1"; }

nfs_exports_gate() { result kernel_nfs_server "$(yes_no kernel_knows nfsd)"; }
