#!/bin/bash
# uses: pam_slurm_adopt/stack ssh_trust/sshd
# Let a user of the cluster log in by SSH only with a job on this node, and put the login into the job's cgroup. Root
# and the account that tailrack logs in with are exempt: they must get in even if Slurm fails.
#
# PAM_SLURM_ADOPT_WANTED   false if the config turned it off
# HEAD_CGROUPS             whether the cluster confines jobs with cgroups
# SLURM_RELEASE            the config's release, which includes the module; empty for the distribution's
# USERS_LINES              `name uid gid`, one per line

# Print the account that this step logged in with.
managing_login() { printenv SUDO_USER || echo root; }

# Succeed if that account can log in through a PAM stack: its name. This is a complete login by sshd. sshd speaks over
# pipes, so no port and no other setting matters, and uses a key that exists only during this function.
manager_enters() {
    local service=$1 place sshd=/usr/sbin/sshd status=0
    place=$(mktemp -d /run/tailrack-login.XXXXXX)
    chmod 0711 "$place"
    ssh-keygen -q -t ed25519 -N '' -f "$place/key"
    chmod 0644 "$place/key.pub"
    printf '%s\n' 'HostKey /etc/ssh/ssh_host_ed25519_key' 'UsePAM yes' 'PermitRootLogin yes' \
        "AuthorizedKeysFile $place/key.pub" >"$place/config"
    if ask_sshd -T | grep '^pamservicename ' >&2; then
        echo "PAMServiceName $service" >>"$place/config"
    else
        # Before OpenSSH 9.8 the stack is named after the program.
        sshd=$place/$service
        ln -s /usr/sbin/sshd "$sshd"
    fi
    timeout 30 ssh -n -F /dev/null -i "$place/key" -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no \
        -o UserKnownHostsFile=/dev/null -o "ProxyCommand=$sshd -i -f $place/config" "$(managing_login)@here" true ||
        status=$?
    rm -rf "$place"
    return "$status"
}

# Print the lines to insert after the stack's last account line.
account_lines() {
    printf '%s\n' '# tailrack: begin' \
        "account [success=ignore default=1] pam_listfile.so item=user sense=allow onerr=fail quiet file=$JOB_USERS" \
        "account required pam_slurm_adopt.so nodename=$HOST_NAME action_adopt_failure=deny action_generic_failure=deny" \
        '# tailrack: end'
}

# Print the lines that replace the one with common-session: pam_systemd would take the login out of its job's cgroup, so
# users who need a job get a copy without it.
session_lines() {
    printf '%s\n' '# tailrack: begin' '# was: @include common-session' \
        "session [success=1 default=ignore] pam_listfile.so item=user sense=allow onerr=fail quiet file=$JOB_USERS" \
        'session substack common-session' \
        "session [success=1 default=ignore] pam_listfile.so item=user sense=deny onerr=succeed quiet file=$JOB_USERS" \
        "session substack $(basename "$PAM_OF_JOBS")" '# tailrack: end'
}

stack_with_jobs() {
    stack_without_jobs | awk -v account="$(account_lines)" -v session="$(session_lines)" '
        { line[NR] = $0 }
        /^-?account[ \t]/ || /^@include[ \t]+common-account[ \t]*$/ { last = NR }
        /^@include[ \t]+common-session[ \t]*$/ { include = NR }
        END {
            if (!last || !include) exit 1
            for (i = 1; i <= NR; i++) {
                print i == include ? session : line[i]
                if (i == last) print account
            }
        }'
}

# Require a job. Test the stack under another name before it becomes sshd's, so that a killed step leaves a working
# stack.
require_job() {
    local old_stack new_stack manager remedy
    manager=$(managing_login)
    remedy="see 'journalctl -t sshd-session -t sshd' on $HOST_NAME, or set tailrack:slurm.ssh_needs_job to false"
    [ -n "$SLURM_RELEASE" ] || ensure_packages libpam-slurm-adopt
    ask_sshd -T | grep -x 'usepam yes' >&2 || fail "sshd does not use PAM on this machine, so it cannot check for jobs" \
        "set UsePAM yes in /etc/ssh/sshd_config on $HOST_NAME, or tailrack:slurm.ssh_needs_job to false"
    ensure_file "$JOB_USERS" 0644 root:root "$(cut -d' ' -f1 <<<"$USERS_LINES" | grep -vxF "$manager")"
    ensure_file "$PAM_OF_JOBS" 0644 root:root "# Written by tailrack: common-session without pam_systemd.
$(grep -v 'pam_systemd\.so' /etc/pam.d/common-session)"
    old_stack=$(cat "$PAM_SSHD")
    new_stack=$(stack_with_jobs) || fail "$PAM_SSHD includes no common-account and common-session" \
        "restore Debian's lines, or set tailrack:slurm.ssh_needs_job to false"
    [ "$old_stack" != "$new_stack" ] || return 0
    manager_enters sshd || fail "$manager cannot log in through the present sshd and PAM configuration" "$remedy"
    ensure_file "$PAM_TRIED" 0644 root:root "$new_stack"
    manager_enters "$(basename "$PAM_TRIED")" ||
        fail "$manager could not log in with the new PAM stack; nothing was changed" "$remedy"
    mv -fT "$PAM_TRIED" "$PAM_SSHD"
    if ! manager_enters sshd; then
        ensure_file "$PAM_SSHD" 0644 root:root "$old_stack"
        fail "$manager could not log in with the new PAM stack; $PAM_SSHD was restored" "$remedy"
    fi
    note "users need a job here to log in by SSH"
}

pam_slurm_adopt_node() {
    if [ "$PAM_SLURM_ADOPT_WANTED" = true ] && [ "$HEAD_CGROUPS" = true ]; then
        require_job
    else
        note "users can log in here by SSH without a job"
        restore_stack
    fi
}
