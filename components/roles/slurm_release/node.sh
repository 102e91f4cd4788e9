#!/bin/bash
# uses: slurm_release/build slurm_release/install slurm_release/ready_packages
# Install the release on a node: packages from the head node if it has this kind of machine, or packages built here.
# Never another node's packages, because root runs them.
#
# SLURM_RELEASE_SHA256   checksum of the release's source
# NFS_EXPORTS_MOUNT      where the share is mounted

slurm_release_node() {
    local share=$NFS_EXPORTS_MOUNT/$SHARED_SLURM kind folder
    take_ready_list "$NFS_EXPORTS_MOUNT/$SHARED_SLURM"
    kind=$(release_kind)
    folder=$STATE_DIR/slurm-releases/$kind
    if has_release "$share/$kind"; then
        folder=$share/$kind
    elif ! has_release "$folder"; then
        note "the head node has no packages for $kind"
        refuse_without_source
        install -d -m 0700 "$STATE_DIR/slurm-source"
        take_artifact "$share/source/$(source_name)" "$STATE_DIR/slurm-source" "$SLURM_RELEASE_SHA256"
        build_release "$STATE_DIR/slurm-source/$(source_name)" "$folder"
        rm -rf "$STATE_DIR/slurm-source"
    fi
    install_release "$folder" slurm-smd slurm-smd-client slurm-smd-dev slurm-smd-slurmd slurm-smd-libpam-slurm-adopt
}
