#!/bin/bash
# uses: pam_slurm_adopt/stack ssh_trust/sshd
# A user of the cluster who logs in here by SSH needs a job here, and is in its cgroup. Nobody else is asked: root and
# the account that this program logs in with must get in whatever Slurm does.
#
# PAM_SLURM_ADOPT_WANTED   false where the config turned it off
# HEAD_CGROUPS             whether the cluster confines jobs by cgroups
# SLURM_RELEASE              the config's own release, which has the module already; empty for the distribution's
# USERS_LINES              `name uid gid`, one a line

# The account that this step came in by.
managing_login() { printenv SUDO_USER || echo root; }

# Whether that account gets in through a stack, by its name: a whole login by sshd, which speaks over pipes, so there is
# no port and nobody else's setting in it, and takes a key that lives as long as this function.
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
        # Before OpenSSH 9.8 the program's name was that of the stack.
        sshd=$place/$service
        ln -s /usr/sbin/sshd "$sshd"
    fi
    timeout 30 ssh -n -F /dev/null -i "$place/key" -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=no \
        -o UserKnownHostsFile=/dev/null -o "ProxyCommand=$sshd -i -f $place/config" "$(managing_login)@here" true ||
        status=$?
    rm -rf "$place"
    return "$status"
}

# Lines of the stack that go after its last one about accounts.
account_lines() {
    printf '%s\n' '# tailrack: begin' \
        "account [success=ignore default=1] pam_listfile.so item=user sense=allow onerr=fail quiet file=$JOB_USERS" \
        "account required pam_slurm_adopt.so nodename=$HOST_NAME action_adopt_failure=deny action_generic_failure=deny" \
        '# tailrack: end'
}

# Lines in the place of the one that has common-session: pam_systemd would take the login out of its job's cgroup, so who
# needs a job gets a copy without it.
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

# The stack is tried under another name before it is sshd's: a step that is killed leaves one by which people get in.
ask_for_a_job() {
    local before after manager remedy
    manager=$(managing_login)
    remedy="see 'journalctl -t sshd-session -t sshd' on $HOST_NAME, or set tailrack:slurm.ssh_needs_job to false"
    [ -n "$SLURM_RELEASE" ] || ensure_packages libpam-slurm-adopt
    ask_sshd -T | grep -x 'usepam yes' >&2 || fail "sshd here does not ask PAM, which alone knows who has a job" \
        "set UsePAM yes in /etc/ssh/sshd_config on $HOST_NAME, or tailrack:slurm.ssh_needs_job to false"
    ensure_file "$JOB_USERS" 0644 root:root "$(cut -d' ' -f1 <<<"$USERS_LINES" | grep -vxF "$manager")"
    ensure_file "$PAM_OF_JOBS" 0644 root:root "# Written by tailrack: common-session without pam_systemd.
$(grep -v 'pam_systemd\.so' /etc/pam.d/common-session)"
    before=$(cat "$PAM_SSHD")
    after=$(stack_with_jobs) || fail "$PAM_SSHD includes no common-account and common-session" \
        "put Debian's lines in again, or set tailrack:slurm.ssh_needs_job to false"
    [ "$before" != "$after" ] || return 0
    manager_enters sshd || fail "$manager cannot log in through sshd and PAM as they are" "$remedy"
    ensure_file "$PAM_TRIED" 0644 root:root "$after"
    manager_enters "$(basename "$PAM_TRIED")" ||
        fail "$manager could not log in any more if users needed a job; nothing was changed" "$remedy"
    mv -fT "$PAM_TRIED" "$PAM_SSHD"
    if ! manager_enters sshd; then
        ensure_file "$PAM_SSHD" 0644 root:root "$before"
        fail "$manager could not log in any more where users need a job; $PAM_SSHD is as it was" "$remedy"
    fi
    note "users need a job here to log in by SSH"
}

pam_slurm_adopt_node() {
    if [ "$PAM_SLURM_ADOPT_WANTED" = true ] && [ "$HEAD_CGROUPS" = true ]; then
        ask_for_a_job
    else
        note "users log in here by SSH without a job"
        forget_jobs_of_stack
    fi
}
