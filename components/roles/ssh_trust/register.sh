#!/bin/bash
# uses: ssh_trust/authority tailnet/peer
# Sign a node's SSH host key, and ask the node to leave the cluster on removal.
#
# NODE_NAME, NODE_ADDRESS, NODE_HOST_KEY, NODE_SSHD_PORT
# NODE_ADOPT   true if it stays in its tailnet

ssh_trust_register() {
    take_lock
    # tailrack-ask reads it.
    ensure_file "$STATE_DIR/members/$NODE_NAME/sshd_port" 0644 root:root "$NODE_SSHD_PORT"
    # Role names has recorded its address already, so a later change of the authorities reaches this node too.
    result authorities "$(json_string "$(cat "$AUTHORITY_TRUSTED")")"
    result certificate "$(json_string "$(certificate_for "$NODE_NAME" "$NODE_NAME,$NODE_ADDRESS" "$NODE_HOST_KEY")")"
}

# Seconds. The SSH options detect a silent node; on a busy one systemd may wait 90 s for each of several daemons.
LEAVING_LIMIT=300

# The logout at the end may cut the connection.
ask_to_leave() {
    timeout "$LEAVING_LIMIT" ssh -i "$LEAVE_KEY" -p "$NODE_SSHD_PORT" -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=10 \
        -o ServerAliveInterval=5 -o ServerAliveCountMax=3 \
        -o StrictHostKeyChecking=yes -o "HostKeyAlias=$NODE_NAME" "root@$NODE_ADDRESS"
}

node_answers() { timeout 5 bash -c ": <>/dev/tcp/$NODE_ADDRESS/$NODE_SSHD_PORT"; }

ssh_trust_register_release() {
    take_lock
    if ask_to_leave; then
        [ "$NODE_ADOPT" = true ] || wait_until "$GONE_LIMIT" node_logged_out || fail \
            "$NODE_NAME reported that it leaves, but is still in the tailnet after ${GONE_LIMIT}s" \
            "see 'journalctl -u tailrack-logout' on $NODE_NAME, run 'tailrack-leave' as root there, then run the same command again"
        return
    fi
    # It would keep the munge key and register with Slurm again.
    if node_answers; then
        fail "$NODE_NAME answers at $NODE_ADDRESS and did not leave" \
            "run 'tailrack-leave' as root on $NODE_NAME, then run the same command again"
    fi
    # A machine that is off cannot be asked; the cluster forgets it all the same.
    note "$NODE_NAME does not answer at $NODE_ADDRESS: treated as gone. If it comes back, run tailrack-leave there."
}

ssh_trust_register_forget() { rm -rf "$STATE_DIR/members/$NODE_NAME"; }
