#!/bin/bash
# Find processes that a user's jobs left behind on this node.

# Users who can log in here only while they have a job, one a line (role pam_slurm_adopt).
JOB_USERS=/etc/tailrack/job-users

# Succeed if a process belongs to a job: by its cgroup, or because one of its parents is root's slurmstepd.
in_a_job() {
    local pid=$1 name owner parent
    if grep -qs '/job_[0-9]' "/proc/$pid/cgroup"; then return 0; fi
    while [ "$pid" -gt 1 ]; do
        { read -r name <"/proc/$pid/comm"; } 2>/dev/null || return 1
        owner=$(stat -c %u "/proc/$pid" 2>/dev/null)
        if [[ $name == slurmstepd* && $owner == 0 ]]; then return 0; fi
        parent=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status" 2>/dev/null)
        pid=${parent:-0}
    done
    return 1
}

# Succeed if slurmd started a process, or a login that needs a job. A user's other processes (a login on a head node, a
# service, cron) belong to no job.
started_by_slurm() {
    local group
    # On a pod (role pod), users have no other way in, and no cgroup tells.
    [ ! -e /usr/local/lib/tailrack/supervise ] || return 0
    # With several hierarchies, systemd's is the last line.
    group=$(sed -n 's/^0:://p' "/proc/$1/cgroup" 2>/dev/null)
    case $group in
        */slurmd.service* | *slurmstepd.scope*) return 0 ;;
        */user.slice/*) grep -qsxF "$(id -un "$2" 2>/dev/null)" "$JOB_USERS" ;;
        *) return 1 ;;
    esac
}

# Print the pids of the leftover processes of uid $1, one a line.
leftover_processes() {
    local pid
    for pid in $(pgrep -U "$1"); do
        # Zombies hold no resources; skip them.
        if grep -qs '^State:[[:space:]]*Z' "/proc/$pid/status"; then continue; fi
        if ! in_a_job "$pid" && started_by_slurm "$pid" "$1"; then echo "$pid"; fi
    done
}
