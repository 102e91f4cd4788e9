#!/bin/bash
# sshd's PAM stack with the cluster's lines, and without them. Part of tailrack-leave too, so it uses nothing of base.sh.

PAM_SSHD=/etc/pam.d/sshd
# What the stack will be, tried before it takes the place of the real one.
PAM_TRIED=/etc/pam.d/tailrack-tried
# common-session for users who are in a job.
PAM_OF_JOBS=/etc/pam.d/tailrack-jobs
# Names of those who need a job, one a line.
JOB_USERS=/etc/tailrack/job-users

# The stack as it is without the cluster's lines.
stack_without_jobs() { sed '/^# tailrack: begin$/,/^# tailrack: end$/{/^# was: /!d;s///}' "$PAM_SSHD"; }

forget_jobs_of_stack() {
    if grep -q '^# tailrack: begin$' "$PAM_SSHD"; then
        # Renamed when it is whole, so that there is no moment without a stack. Until then it needs its files.
        { stack_without_jobs >"$PAM_TRIED" && chmod 0644 "$PAM_TRIED" && mv -fT "$PAM_TRIED" "$PAM_SSHD"; } || return 1
    fi
    rm -f "$PAM_OF_JOBS" "$JOB_USERS" "$PAM_TRIED"
}
