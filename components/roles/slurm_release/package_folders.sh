#!/bin/bash
# uses: machine/artifact
# Packages of one Slurm release as they lie in a folder: for one distribution and architecture, whole, and root's.
#
# SLURM_RELEASE                   release, such as 24.11.5
# SLURM_RELEASE_SHA256            of its source; empty where ready packages are all there is
# SLURM_RELEASE_PACKAGES_SHA256   of the list of ready packages; empty without any

# A folder of the share that only root of the head node can write: root of every other machine is nobody there.
SHARED_SLURM=slurm
# What is taken of all that the source makes.
RELEASE_PACKAGES=(slurm-smd slurm-smd-client slurm-smd-dev slurm-smd-slurmctld slurm-smd-slurmdbd slurm-smd-slurmd slurm-smd-libpam-slurm-adopt)
# Another number where packages are made in another way from the same source.
RECIPE=3
# The list of ready packages, looked at; empty without one.
READY_LIST=''

# What packages are built for: another distribution does not have their libraries.
machine_kind() {
    local ID VERSION_ID VERSION_CODENAME
    # shellcheck source=/dev/null
    . /etc/os-release
    printf '%s' "$ID-${VERSION_ID:-${VERSION_CODENAME:-rolling}}-$(dpkg --print-architecture)"
}

# And from what: where the list of ready packages has this machine's kind, those are what it gets.
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

# Kinds of machine that the list of ready packages has the release for, one a line.
ready_kinds() {
    [ -z "$READY_LIST" ] || awk -v of="_$SLURM_RELEASE-" 'index($2, of) {print $2}' "$READY_LIST" |
        sed -nE 's#^[*]?([a-z]+-[a-z0-9.]+-[a-z0-9]+)/slurm-smd_[A-Za-z0-9.+~_-]+[.]deb$#\1#p' | sort -u
}

# `sha256  file` of what the list of ready packages has of the release for a kind of machine.
ready_sums() {
    local package
    [ -n "$READY_LIST" ] || return 0
    for package in "${RELEASE_PACKAGES[@]}"; do
        awk -v start="$1/${package}_$SLURM_RELEASE-" '{sub(/^[*]/, "", $2)}
            index($2, start) == 1 && $1 ~ /^[0-9a-f]+$/ && $2 ~ /^[A-Za-z0-9.+~_\/-]+[.]deb$/ && split($2, part, "/") == 2 {
                print $1 "  " part[2]; exit}' "$READY_LIST"
    done
}

# No machine gets what nobody has built for it.
refuse_without_source() {
    local kinds
    kinds=$(ready_kinds | paste -sd ' ')
    [ -n "$SLURM_RELEASE_SHA256" ] || fail \
        "nobody has built Slurm $SLURM_RELEASE for $(machine_kind): tailrack:slurm.release_packages has it for ${kinds:-no kind of machine}" \
        "put its packages there in a folder $(machine_kind), with their sums in SHA256SUMS; or write release_sha256, and it is built from its source; then run up again"
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
