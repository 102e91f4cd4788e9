#!/bin/bash
# uses: machine/artifact
# Names for build.sh, as in release.py.
#
# SLURM_RELEASE          release, such as 24.11.5
# SLURM_RELEASE_SHA256   checksum of its source

# The packages to keep of those that the source builds.
RELEASE_PACKAGES=(slurm-smd slurm-smd-client slurm-smd-dev slurm-smd-slurmctld slurm-smd-slurmdbd slurm-smd-slurmd slurm-smd-libpam-slurm-adopt)
# Change this number, and that in release.py, when the same source is built differently.
RECIPE=3

# Print the kind of machine: packages work only with their own distribution's libraries.
machine_kind() {
    local ID VERSION_ID VERSION_CODENAME
    # shellcheck source=/dev/null
    . /etc/os-release
    printf '%s' "$ID-${VERSION_ID:-${VERSION_CODENAME:-rolling}}-$(dpkg --print-architecture)"
}

# Print the name of the folder with packages that were built for this machine.
release_kind() { printf '%s' "$(machine_kind)-$SLURM_RELEASE-${SLURM_RELEASE_SHA256:0:12}-$RECIPE"; }

# Print the source's file name. tar detects the compression.
source_name() { printf 'slurm-%s-%s.tar' "$SLURM_RELEASE" "${SLURM_RELEASE_SHA256:0:12}"; }
