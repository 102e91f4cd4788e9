#!/bin/bash
# uses: slurm_release/packages
# The machine's own package manager decides about Slurm again.

slurm_release_leave() {
    # What a build that was cut off has left.
    if id -u tailrack-build >/dev/null 2>&1; then
        pkill -KILL -u tailrack-build || :
        userdel tailrack-build
    fi
    [ -e "$SLURM_PIN" ] || return 0
    slurm_packages_of slurm-smd | xargs -r apt-mark unhold >/dev/null
    rm -f "$SLURM_PIN"
}
