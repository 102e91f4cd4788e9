#!/bin/bash
# Remove the cluster's lines from sshd's PAM stack. Part of tailrack-leave too, so it uses nothing of base.sh.

PAM_SSHD=/etc/pam.d/sshd
# The new stack, for a test before it replaces the real one.
PAM_TRIED=/etc/pam.d/tailrack-tried
# common-session for logins that join a job.
PAM_OF_JOBS=/etc/pam.d/tailrack-jobs
# Users who need a job, one per line.
JOB_USERS=/etc/tailrack/job-users

# Print the stack without the cluster's lines.
stack_without_jobs() { sed '/^# tailrack: begin$/,/^# tailrack: end$/{/^# was: /!d;s///}' "$PAM_SSHD"; }

restore_stack() {
    if grep -q '^# tailrack: begin$' "$PAM_SSHD"; then
        # Rename the complete file, so that a stack always exists. The old stack needs its files until then.
        { stack_without_jobs >"$PAM_TRIED" && chmod 0644 "$PAM_TRIED" && mv -fT "$PAM_TRIED" "$PAM_SSHD"; } || return 1
    fi
    rm -f "$PAM_OF_JOBS" "$JOB_USERS" "$PAM_TRIED"
}
