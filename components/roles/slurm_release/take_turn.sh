#!/bin/bash
# Replace slurmd by another release on one node of the cluster at a time, across all stacks. The controller keeps the
# turn as a reservation of that node: no job starts there meanwhile, and running jobs continue. The turn of an
# interrupted step ends on its own.

TURN=tailrack-release
# Minutes of a turn, from stopping slurmd until it is back.
TURN_MINUTES=15
# Seconds to wait for a turn.
TURN_LIMIT=3600
# Copy of the configuration, which slurmd deletes when it stops. It exists while this machine has a turn, which
# take_turn.py ends after phase `compute` of role slurm.
TURN_CONF=$PRIVATE_DIR/slurm-turn

controller_reached() { timeout 20 scontrol show config >/dev/null 2>&1; }

# Print the node that has the turn.
turn_holder() { timeout 20 scontrol -o show reservation "$TURN" 2>/dev/null | sed -nE 's/.* Nodes=([^ ]+) .*/\1/p'; }

claim_turn() {
    local holder
    if TURN_ERROR=$(timeout 20 scontrol create reservation "reservationname=$TURN" starttime=now "duration=$TURN_MINUTES" \
        users=root flags=maint,ignore_jobs "nodes=$HOST_NAME" 2>&1); then return 0; fi
    holder=$(turn_holder)
    # Left by an interrupted run of this step.
    if [ "$holder" = "$HOST_NAME" ]; then
        scontrol delete "reservationname=$TURN"
        return 1
    fi
    [ "$holder" = "$TURN_HOLDER" ] || note "waiting for a turn${holder:+; $holder is getting its release now}"
    TURN_HOLDER=$holder
    # All waiting nodes ask the same controller.
    sleep 2
    return 1
}

# Wait for this node's turn, if its slurmd could get jobs.
take_turn() {
    local TURN_HOLDER=none conf=/run/slurm/conf
    # An interrupted step may have left it.
    rm -rf "$TURN_CONF"
    systemctl -q is-active slurmd || return 0
    wait_until 60 controller_reached || fail "the controller does not answer, and it decides which node gets another release next" \
        "see 'scontrol ping' on $HOST_NAME and 'systemctl status slurmctld' on the head node, then run up again"
    # A node that the controller does not have gets no jobs, and cannot be reserved.
    timeout 20 scontrol show node "$HOST_NAME" >/dev/null 2>&1 || return 0
    wait_until "$TURN_LIMIT" claim_turn || fail "waited ${TURN_LIMIT}s for other nodes, which get their release one at a time${TURN_ERROR:+ (${TURN_ERROR##*$'\n'})}" \
        "see 'scontrol show reservation $TURN'; run up again: nodes that already have the release need no turn"
    install -d -m 0700 "$PRIVATE_DIR" "$TURN_CONF"
    AT_END+=(end_turn)
    [ -e "$conf/slurm.conf" ] || conf=/etc/slurm # the head node's own
    cp -L "$conf"/* "$TURN_CONF/"
}

# End this node's turn, if it has one.
end_turn() {
    [ -d "$TURN_CONF" ] || return 0
    SLURM_CONF=$TURN_CONF/slurm.conf timeout 20 scontrol delete "reservationname=$TURN" ||
        note "the turn of $HOST_NAME ends on its own after $TURN_MINUTES minutes"
    rm -rf "$TURN_CONF"
}
