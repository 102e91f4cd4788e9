#!/bin/bash
# uses: slurm_release/package_folders
# Packages that were built elsewhere. The head node copies them to the share, and every machine compares them with the
# one list whose checksum is in the config.
#
# SLURM_RELEASE                   release, such as 24.11.5
# SLURM_RELEASE_PACKAGES          where they are: an address, or a path on the head node; empty without any
# SLURM_RELEASE_PACKAGES_SHA256   checksum of SHA256SUMS there

# Copy the list and the release's packages for every kind of machine into subfolders of a folder.
keep_ready_packages() {
    local folder=$1 kind target package sum file
    [ -n "$SLURM_RELEASE_PACKAGES" ] || return 0
    READY_LIST=$folder/source/$(ready_list_name)
    keep_artifact "$READY_LIST" "$SLURM_RELEASE_PACKAGES_SHA256" "$SLURM_RELEASE_PACKAGES/SHA256SUMS" \
        tailrack:slurm.release_packages tailrack:slurm.release_packages_sha256
    while read -r kind; do
        target=$folder/$(ready_name "$kind")
        if has_release "$target"; then continue; fi
        for package in "${RELEASE_PACKAGES[@]}"; do
            [[ $(ready_sums "$kind") == *" ${package}_"* ]] || fail \
                "SHA256SUMS of $SLURM_RELEASE_PACKAGES has no $package of $SLURM_RELEASE for $kind" \
                "add it there (docs/slurm-releases.md lists the packages), then run up again"
        done
        rm -rf "$target.new" "$target"
        mkdir -p "$target.new"
        while read -r sum file; do
            keep_artifact "$target.new/$file" "$sum" "$SLURM_RELEASE_PACKAGES/$kind/$file" \
                tailrack:slurm.release_packages tailrack:slurm.release_packages_sha256
        done < <(ready_sums "$kind")
        ready_sums "$kind" >"$target.new/SHA256SUMS"
        sync -f "$target.new"
        mv -T "$target.new" "$target"
    done < <(ready_kinds)
}

# Copy the list from the share into a folder of root.
take_ready_list() {
    [ -n "$SLURM_RELEASE_PACKAGES" ] || return 0
    install -d -m 0700 "$STATE_DIR/slurm-list"
    take_artifact "$1/source/$(ready_list_name)" "$STATE_DIR/slurm-list" "$SLURM_RELEASE_PACKAGES_SHA256"
    READY_LIST=$STATE_DIR/slurm-list/$(ready_list_name)
}

# Succeed if a folder of this machine's packages matches the list, or the list does not have its kind.
matches_list() {
    local sums
    sums=$(ready_sums "$(machine_kind)")
    [ -z "$sums" ] || [ "$(cat "$1/SHA256SUMS")" = "$sums" ]
}
