#!/bin/bash
# What the head node keeps of one member: its export and the certificate of its SSH host key; and how it sees the
# member off.
#
# MEMBER, MEMBER_ADDRESS, MEMBER_HOST_KEY, MEMBER_SSH_PORT
# SHARE_PATH, KERNEL_NFS   see lib/nfs_server
: "${MEMBER:?}" "${MEMBER_ADDRESS:?}" "${MEMBER_HOST_KEY:?}" "${MEMBER_SSH_PORT:=22}"

# Seconds a job on the member may go on before it is requeued.
JOB_LIMIT=${JOB_LIMIT:-300}

# Several members may be waiting for their jobs at once; the lock is taken for the changes alone.
# shellcheck disable=SC2034  # read by dispatch
STEP_UNLOCKED=yes
# shellcheck disable=SC2034
STEP_NAME=member-$MEMBER

up() {
    take_lock
    # Reread by the server as a whole, so nothing is left of an address this member had before.
    ensure_file "$EXPORTS_DIR/tailrack-$MEMBER.exports" 0644 root:root \
        "$SHARE_PATH $MEMBER_ADDRESS/32($(export_options))"
    apply_exports
    json_object certificate "$(json_string "$(certificate_for "$MEMBER" "$MEMBER_ADDRESS" "$MEMBER_HOST_KEY")")" >&3
}

member_known() { scontrol show node "$MEMBER" >/dev/null 2>&1; }
controller_answers() { scontrol ping 2>/dev/null | grep -q 'is UP'; }
member_jobs() { squeue -h -w "$MEMBER" -o %A | sort -u; }
member_idle() {
    local jobs
    jobs=$(member_jobs) && [ -z "$jobs" ]
}
member_deleted() { ! member_known || scontrol delete "nodename=$MEMBER"; }

# Jobs on the member may finish; after JOB_LIMIT seconds they go back to the queue.
see_jobs_off() {
    scontrol update "nodename=$MEMBER" state=drain reason="tailrack: leaves the cluster"
    if scontrol show node "$MEMBER" | grep -Eq 'State=[A-Z+]*(DOWN|NOT_RESPONDING)|State=.*\*'; then
        note "$MEMBER does not answer: not waiting for its jobs"
    elif wait_until "$JOB_LIMIT" member_idle; then
        return
    fi
    note "requeueing: $(member_jobs | tr '\n' ' ')"
    member_jobs | xargs -r -n 1 scontrol requeue
    wait_until 30 member_idle || scontrol update "nodename=$MEMBER" state=down reason="tailrack: leaves the cluster"
}

ask_to_leave() {
    timeout 90 ssh -i "$LEAVE_KEY" -p "$MEMBER_SSH_PORT" -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=10 \
        -o StrictHostKeyChecking=yes -o "HostKeyAlias=$MEMBER" "root@$MEMBER_ADDRESS"
}

member_answers() { timeout 5 bash -c ": <>/dev/tcp/$MEMBER_ADDRESS/$MEMBER_SSH_PORT"; }

down() {
    # A controller that is away knows no node at all, which must not pass for "gone already".
    wait_until 60 controller_answers || fail "slurmctld does not answer" "see 'journalctl -u slurmctld' on $HOST_NAME"
    if member_known; then see_jobs_off; fi
    take_lock
    if ! ask_to_leave; then
        # It would keep the munge key, and come back into Slurm by itself.
        if member_answers; then
            fail "$MEMBER answers at $MEMBER_ADDRESS and did not leave" \
                "run 'tailrack-leave' as root on $MEMBER, then run the same command again"
        fi
        # A machine that is switched off for good cannot be asked; the cluster forgets it all the same.
        note "$MEMBER does not answer at $MEMBER_ADDRESS: taken as gone. Should it come back, run tailrack-leave there."
    fi
    wait_until 60 member_deleted || fail "Slurm keeps node $MEMBER" "see 'scontrol show node $MEMBER' on $HOST_NAME"
    rm -f "$EXPORTS_DIR/tailrack-$MEMBER.exports"
    rm -rf "$STATE_DIR/members/$MEMBER"
    apply_exports
    json_object left true >&3
}
