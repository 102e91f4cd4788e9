#!/bin/bash
# uses: slurm_release/build slurm_release/install slurm_release/ready_packages
# Provide the release's packages and source on the share, and install them here before any node does.
#
# SLURM_RELEASE, SLURM_RELEASE_SHA256   release, and the checksum of its source; empty if only ready packages are used
# SLURM_RELEASE_FROM                    where the source comes from: an address, or a path on the head node
# NFS_EXPORTS_PATH                      directory of the share
# HEAD_COMPUTES                         true when the head node runs jobs too
# ACCOUNTING_ENABLED                    true when accounting is on

slurm_release_head() {
    local folder=$NFS_EXPORTS_PATH/$SHARED_SLURM packages kind
    # Root owns their parents, so no other account can replace these folders.
    install -d -m 0755 "$folder" "$folder/source"
    keep_ready_packages "$folder"
    kind=$folder/$(release_kind)
    [ -z "$SLURM_RELEASE_SHA256" ] || keep_artifact "$folder/source/$(source_name)" "$SLURM_RELEASE_SHA256" "$SLURM_RELEASE_FROM" \
        tailrack:slurm.release_source tailrack:slurm.release_sha256
    if ! has_release "$kind"; then
        refuse_without_source
        build_release "$folder/source/$(source_name)" "$kind"
    fi
    packages=(slurm-smd slurm-smd-client slurm-smd-dev slurm-smd-slurmctld)
    [ "$HEAD_COMPUTES" != true ] || packages+=(slurm-smd-slurmd)
    [ "$ACCOUNTING_ENABLED" != true ] || packages+=(slurm-smd-slurmdbd)
    install_release "$kind" "${packages[@]}"
}
