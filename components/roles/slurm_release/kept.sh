#!/bin/bash
# uses: machine/artifact
# Packages of one Slurm release as they lie in a folder: for one distribution and architecture, whole, and root's.
#
# SLURM_RELEASE                release, such as 24.11.5
# SLURM_RELEASE_SHA256         of its source

# A folder of the share that only root of the head node can write: root of every other machine is nobody there.
SHARED_SLURM=slurm
# What is taken of all that the source makes.
RELEASE_PACKAGES=(slurm-smd slurm-smd-client slurm-smd-dev slurm-smd-slurmctld slurm-smd-slurmd slurm-smd-libpam-slurm-adopt)
# Another number where packages are made in another way from the same source.
RECIPE=1

# What packages are built for, and from what: another distribution does not have their libraries.
release_kind() {
    local ID VERSION_ID VERSION_CODENAME
    # shellcheck source=/dev/null
    . /etc/os-release
    printf '%s' "$ID-${VERSION_ID:-${VERSION_CODENAME:-rolling}}-$(dpkg --print-architecture)-$SLURM_RELEASE-${SLURM_RELEASE_SHA256:0:12}-$RECIPE"
}

# The source as it is kept; tar finds out by itself how it was compressed.
source_name() { printf 'slurm-%s-%s.tar' "$SLURM_RELEASE" "${SLURM_RELEASE_SHA256:0:12}"; }

# Whether a folder has all packages, as they were published, and nobody's but root's.
has_release() {
    local package
    [ "$(stat -c %u "$1" "$1"/* 2>/dev/null | sort -u)" = 0 ] || return 1
    for package in "${RELEASE_PACKAGES[@]}"; do grep -q " ${package}_" "$1/SHA256SUMS" || return 1; done
    (cd "$1" && sha256sum --status --strict -c SHA256SUMS)
}

# Make the packages of a folder those of another one. It has its name when it is whole.
publish_release() {
    local from=$1 target=$2 package path
    rm -rf "$target.new" "$target"
    mkdir -p "$target.new"
    for package in "${RELEASE_PACKAGES[@]}"; do
        path=$(compgen -G "$from/${package}_*.deb")
        install -m 0644 "$path" "$target.new/"
    done
    (cd "$target.new" && sha256sum -- *.deb >SHA256SUMS)
    sync -f "$target.new"
    mv -T "$target.new" "$target"
}
