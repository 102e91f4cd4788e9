#!/bin/bash
# Processes that a user's jobs have left on this node.

# Users who may log in here with a job alone, one a line (role pam_slurm_adopt).
JOB_USERS=/etc/tailrack/job-users

# Whether a process is in a job: by its cgroup, or because a slurmstepd of root's is above it.
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

# Whether slurmd has started it, or a login that needs a job: what else runs in a user's name (a login on a head node, a
# service, cron) is none of a job's.
of_slurm() {
    local group
    # systemd's own hierarchy is the last line where there are others.
    group=$(sed -n 's/^0:://p' "/proc/$1/cgroup" 2>/dev/null)
    case $group in
        */slurmd.service* | *slurmstepd.scope*) return 0 ;;
        */user.slice/*) grep -qsxF "$(id -un "$2" 2>/dev/null)" "$JOB_USERS" ;;
        *) return 1 ;;
    esac
}

# Their numbers, one a line. The user's uid
left_processes() {
    local pid
    for pid in $(pgrep -U "$1"); do
        # What has ended and is not fetched by its parent holds nothing.
        if grep -qs '^State:[[:space:]]*Z' "/proc/$pid/status"; then continue; fi
        if ! in_a_job "$pid" && of_slurm "$pid" "$1"; then echo "$pid"; fi
    done
}
