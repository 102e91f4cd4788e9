#!/bin/bash
# Find Slurm's installed packages by the source that they were built from. Part of tailrack-leave too.

# Keeps apt from installing the distribution's Slurm during upgrades.
SLURM_PIN=/etc/apt/preferences.d/tailrack-slurm
# The name of the installed release's package folder, in one line.
SLURM_INSTALLED=/var/lib/tailrack/slurm-release

# Print the installed packages that were built from one of these sources, one per line.
slurm_packages_of() {
    # shellcheck disable=SC2016  # read by dpkg-query
    dpkg-query -W -f='${source:Package} ${db:Status-Status} ${Package}\n' |
        awk -v sources=" $* " 'index(sources, " " $1 " ") && $2 == "installed" {print $3}'
}
