#!/bin/bash
# A release takes the place of a running slurmd on one node of the cluster at a time, whichever stack the node is of. The
# controller keeps whose turn it is, as a reservation of that node: meanwhile no job starts there, and those that run go on.
# Where a step was cut off, its turn ends by itself.

TURN=tailrack-release
# Minutes that a turn has, from slurmd's end to its being back.
TURN_MINUTES=15
# Seconds to wait for one.
TURN_LIMIT=3600
# Where the way to the controller is while slurmd is away, which has it otherwise; empty without a turn.
TURN_CONF=''

controller_reached() { timeout 20 scontrol show config >/dev/null 2>&1; }

# The node whose turn it is; nothing where it is nobody's.
turn_of() { timeout 20 scontrol -o show reservation "$TURN" 2>/dev/null | sed -nE 's/.* Nodes=([^ ]+) .*/\1/p'; }

turn_taken() {
    local holder
    if TURN_SAID=$(timeout 20 scontrol create reservation "reservationname=$TURN" starttime=now "duration=$TURN_MINUTES" \
        users=root flags=maint,ignore_jobs "nodes=$HOST_NAME" 2>&1); then return 0; fi
    holder=$(turn_of)
    # An earlier run of this step was cut off.
    if [ "$holder" = "$HOST_NAME" ]; then
        scontrol delete "reservationname=$TURN"
        return 1
    fi
    [ "$holder" = "$TURN_HOLDER" ] || note "waiting for the turn of ${holder:-nobody}${holder:+, which gets its release now}"
    TURN_HOLDER=$holder
    # All nodes that wait ask one controller.
    sleep 2
    return 1
}

# Wait for this node's turn, where it has a slurmd that jobs could be sent to.
take_turn() {
    local TURN_HOLDER=none conf=/run/slurm/conf
    [ -z "$TURN_CONF" ] && systemctl -q is-active slurmd || return 0
    wait_until 60 controller_reached || fail "the controller does not answer, and says whose turn it is to get another release" \
        "see 'scontrol ping' on $HOST_NAME and 'systemctl status slurmctld' on the head node, then run up again"
    # One that the controller does not know gets no jobs, and could have no turn.
    timeout 20 scontrol show node "$HOST_NAME" >/dev/null 2>&1 || return 0
    wait_until "$TURN_LIMIT" turn_taken || fail "other nodes got their release for ${TURN_LIMIT}s, one at a time${TURN_SAID:+ (${TURN_SAID##*$'\n'})}" \
        "see 'scontrol show reservation $TURN'; run up again: nodes that have the release already keep nobody waiting"
    TURN_CONF=$(mktemp -d)
    AT_END+=(end_turn)
    [ -e "$conf/slurm.conf" ] || conf=/etc/slurm # the head node's own
    cp -L "$conf"/* "$TURN_CONF/"
}

# Let the next node have its turn. Without one it does nothing.
end_turn() {
    local conf=$TURN_CONF
    [ -n "$conf" ] || return 0
    TURN_CONF=''
    SLURM_CONF=$conf/slurm.conf timeout 20 scontrol delete "reservationname=$TURN" ||
        note "the turn of $HOST_NAME ends by itself after $TURN_MINUTES minutes"
    rm -rf "$conf"
}
