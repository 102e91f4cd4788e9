#!/bin/bash
# uses: slurm_release/build slurm_release/install slurm_release/ready_packages
# A node has what the head node brought or built, where that is for its own kind, or what it has built itself; never what
# another node built. It is root's code on every machine.
#
# SLURM_RELEASE_SHA256   of the release's source
# NFS_EXPORTS_MOUNT      where the share is

slurm_release_node() {
    local share=$NFS_EXPORTS_MOUNT/$SHARED_SLURM kind own
    take_ready_list "$NFS_EXPORTS_MOUNT/$SHARED_SLURM"
    kind=$(release_kind)
    own=$STATE_DIR/slurm-releases/$kind
    if has_release "$share/$kind"; then
        own=$share/$kind
    elif ! has_release "$own"; then
        note "the head node has no packages for $kind"
        refuse_without_source
        install -d -m 0700 "$STATE_DIR/slurm-source"
        take_artifact "$share/source/$(source_name)" "$STATE_DIR/slurm-source" "$SLURM_RELEASE_SHA256"
        build_release "$STATE_DIR/slurm-source/$(source_name)" "$own"
        rm -rf "$STATE_DIR/slurm-source"
    fi
    install_release "$own" slurm-smd slurm-smd-client slurm-smd-dev slurm-smd-slurmd slurm-smd-libpam-slurm-adopt
}
