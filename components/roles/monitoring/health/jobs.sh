#!/bin/bash
# Functions for prolog and epilog scripts: which users have jobs on this node.

# One file per job: its name is the job's id, its content the user's uid.
JOBS=/run/tailrack-private/jobs
# One file per job with GPUs: its content is the GPUs that Slurm gave it. Role usage samples these.
GPU_JOBS=/run/tailrack-private/gpu-jobs

# Lock out other jobs' prologs and epilogs until this script ends. $1: seconds to wait for the lock
lock_jobs() {
    install -d -m 0700 "${JOBS%/*}" "$JOBS"
    exec 9>/run/tailrack-private/jobs.lock
    flock -w "$1" 9
}

# Exit the script unless this was the user's last job on this node.
only_after_the_last_job() {
    # The machine's system accounts run no jobs.
    [[ ${SLURM_JOB_UID:-} =~ ^[0-9]+$ && ${SLURM_JOB_GID:-} =~ ^[0-9]+$ ]] && [ "$SLURM_JOB_UID" -ge 1000 ] || exit 0
    lock_jobs 10 || exit 0
    if grep -qsx "$SLURM_JOB_UID" "$JOBS"/*; then exit 0; fi
}

# Succeed if user $1 has a process here. Those that copy or remove files of ended jobs (role scratch) do not count.
has_processes() {
    local pid
    for pid in $(pgrep -U "$1"); do
        grep -qs '/tailrack-scratch-' "/proc/$pid/cgroup" || return 0
    done
    return 1
}
