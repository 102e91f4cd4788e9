#!/bin/bash
# uses: slurm_release/packages
# Let the machine's package manager decide about Slurm again.

slurm_release_leave() {
    # An interrupted build may have left these.
    if id -u tailrack-build >/dev/null 2>&1; then
        pkill -KILL -u tailrack-build || :
        userdel tailrack-build
    fi
    [ -e "$SLURM_PIN" ] || return 0
    slurm_packages_of slurm-smd | xargs -r apt-mark unhold >/dev/null
    rm -f "$SLURM_PIN"
}
