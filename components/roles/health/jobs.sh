#!/bin/bash
# Whose jobs are on this node, for scripts of the prolog and epilog.

# A file a job, its name the job's number, in it the user's.
JOBS=/run/tailrack-private/jobs

# From here on to the end of the script no job begins, nor is anything cleaned up: the seconds to wait for that.
hold_jobs() {
    install -d -m 0700 "${JOBS%/*}" "$JOBS"
    exec 9>/run/tailrack-private/jobs.lock
    flock -w "$1" 9
}

# Ends the script where the user whose job ends has another one here, or where there is nobody to clean up after.
only_after_the_last_job() {
    # Accounts of the machine's own run no jobs here.
    [[ ${SLURM_JOB_UID:-} =~ ^[0-9]+$ && ${SLURM_JOB_GID:-} =~ ^[0-9]+$ ]] && [ "$SLURM_JOB_UID" -ge 1000 ] || exit 0
    hold_jobs 10 || exit 0
    if grep -qsx "$SLURM_JOB_UID" "$JOBS"/*; then exit 0; fi
}
