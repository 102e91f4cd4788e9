#!/bin/bash
# Which packages here are Slurm's, by the source that they were built from. Part of tailrack-leave too.

# apt must not bring the distribution's again, whatever is upgraded.
SLURM_PIN=/etc/apt/preferences.d/tailrack-slurm
# What packages the machine has of a release, in one line.
SLURM_INSTALLED=/var/lib/tailrack/slurm-release

# Names, one a line, of the installed packages that were built from one of these sources.
slurm_packages_of() {
    # shellcheck disable=SC2016  # read by dpkg-query
    dpkg-query -W -f='${source:Package} ${db:Status-Status} ${Package}\n' |
        awk -v sources=" $* " 'index(sources, " " $1 " ") && $2 == "installed" {print $3}'
}
