#!/bin/bash
# Whether a job that ends was the last one of its user on this node. For scripts of the epilog; it keeps the next job of
# anybody from beginning until the script has ended.

JOBS=/run/tailrack-private/jobs

# Ends the script where there is nobody to clean up after.
only_after_the_last_job() {
    # Accounts of the machine's own run no jobs here.
    [[ ${SLURM_JOB_UID:-} =~ ^[0-9]+$ && ${SLURM_JOB_GID:-} =~ ^[0-9]+$ ]] && [ "$SLURM_JOB_UID" -ge 1000 ] || exit 0
    install -d -m 0700 /run/tailrack-private "$JOBS"
    exec 9>/run/tailrack-private/jobs.lock
    flock -w 10 9 || exit 0
    if grep -qsx "$SLURM_JOB_UID" "$JOBS"/*; then exit 0; fi
}
