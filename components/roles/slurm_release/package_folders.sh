#!/bin/bash
# uses: machine/artifact
# Folders with the packages of one Slurm release: for one distribution and architecture, complete, and owned by root.
#
# SLURM_RELEASE                   release, such as 24.11.5
# SLURM_RELEASE_SHA256            checksum of its source; empty if only ready packages are used
# SLURM_RELEASE_PACKAGES_SHA256   checksum of the list of ready packages; empty without a list

# A folder of the share that only root of the head node can write: root of other machines is mapped to nobody.
SHARED_SLURM=slurm
# The packages to keep of those that the source builds.
RELEASE_PACKAGES=(slurm-smd slurm-smd-client slurm-smd-dev slurm-smd-slurmctld slurm-smd-slurmdbd slurm-smd-slurmd slurm-smd-libpam-slurm-adopt)
# Change this number when the same source is built differently.
RECIPE=3
# The verified list of ready packages; empty without one.
READY_LIST=''

# Print the kind of machine: packages work only with their own distribution's libraries.
machine_kind() {
    local ID VERSION_ID VERSION_CODENAME
    # shellcheck source=/dev/null
    . /etc/os-release
    printf '%s' "$ID-${VERSION_ID:-${VERSION_CODENAME:-rolling}}-$(dpkg --print-architecture)"
}

# Print the name of this machine's package folder: of ready packages if the list has this kind of machine.
release_kind() {
    local kind
    kind=$(machine_kind)
    if [ -n "$(ready_sums "$kind")" ]; then
        ready_name "$kind"
    else
        printf '%s' "$kind-$SLURM_RELEASE-${SLURM_RELEASE_SHA256:0:12}-$RECIPE"
    fi
}

ready_name() { printf '%s' "$1-$SLURM_RELEASE-${SLURM_RELEASE_PACKAGES_SHA256:0:12}-ready"; }
ready_list_name() { printf 'packages-%s.sums' "${SLURM_RELEASE_PACKAGES_SHA256:0:12}"; }

# Print the kinds of machine for which the list has the release, one per line.
ready_kinds() {
    [ -z "$READY_LIST" ] || awk -v of="_$SLURM_RELEASE-" 'index($2, of) {print $2}' "$READY_LIST" |
        sed -nE 's#^[*]?([a-z]+-[a-z0-9.]+-[a-z0-9]+)/slurm-smd_[A-Za-z0-9.+~_-]+[.]deb$#\1#p' | sort -u
}

# Print `sha256  file` of the release's packages in the list, for a kind of machine.
ready_sums() {
    local package
    [ -n "$READY_LIST" ] || return 0
    for package in "${RELEASE_PACKAGES[@]}"; do
        awk -v start="$1/${package}_$SLURM_RELEASE-" '{sub(/^[*]/, "", $2)}
            index($2, start) == 1 && $1 ~ /^[0-9a-f]+$/ && $2 ~ /^[A-Za-z0-9.+~_\/-]+[.]deb$/ && split($2, part, "/") == 2 {
                print $1 "  " part[2]; exit}' "$READY_LIST"
    done
}

# Fail if there are neither ready packages for this machine nor a source.
refuse_without_source() {
    local kinds
    kinds=$(ready_kinds | paste -sd ' ')
    [ -n "$SLURM_RELEASE_SHA256" ] || fail \
        "there is no Slurm $SLURM_RELEASE for $(machine_kind): tailrack:slurm.release_packages has it for ${kinds:-no kind of machine}" \
        "add its packages there in a folder $(machine_kind), with their sums in SHA256SUMS; or set release_sha256 to build it from its source; then run up again"
}

# Print the source's file name. tar detects the compression.
source_name() { printf 'slurm-%s-%s.tar' "$SLURM_RELEASE" "${SLURM_RELEASE_SHA256:0:12}"; }

# Succeed if a folder contains all packages, unchanged, and belongs to root.
has_release() {
    local package
    [ "$(stat -c %u "$1" "$1"/* 2>/dev/null | sort -u)" = 0 ] || return 1
    for package in "${RELEASE_PACKAGES[@]}"; do grep -q " ${package}_" "$1/SHA256SUMS" || return 1; done
    (cd "$1" && sha256sum --status --strict -c SHA256SUMS)
}
