#!/bin/bash
# uses: ssh_trust/authority tailnet/peer
# The certificate of a node's SSH host key, and how the head node asks the node to leave the cluster.
#
# NODE_NAME, NODE_ADDRESS, NODE_HOST_KEY, NODE_SSHD_PORT
# NODE_ADOPT   true where it stays in its tailnet

ssh_trust_register() {
    take_lock
    # Where tailrack-ask finds it.
    ensure_file "$STATE_DIR/members/$NODE_NAME/sshd_port" 0644 root:root "$NODE_SSHD_PORT"
    # Its address is kept already (names): whoever changes this after now tells this node too.
    result authorities "$(json_string "$(cat "$AUTHORITY_TRUSTED")")"
    result certificate "$(json_string "$(certificate_for "$NODE_NAME" "$NODE_NAME,$NODE_ADDRESS" "$NODE_HOST_KEY")")"
}

# Seconds. A node that says nothing is found out by the connection; one that is busy may have several daemons which systemd
# waits 90 s for.
LEAVING_LIMIT=300

# The log-out that follows may cut the connection without a word.
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
            "$NODE_NAME says that it leaves, and is in the tailnet still after ${GONE_LIMIT}s" \
            "see 'journalctl -u tailrack-logout' on $NODE_NAME, run 'tailrack-leave' as root there, then run the same command again"
        return
    fi
    # It would keep the munge key, and come back into Slurm by itself.
    if node_answers; then
        fail "$NODE_NAME answers at $NODE_ADDRESS and did not leave" \
            "run 'tailrack-leave' as root on $NODE_NAME, then run the same command again"
    fi
    # A machine that is switched off for good cannot be asked; the cluster forgets it all the same.
    note "$NODE_NAME does not answer at $NODE_ADDRESS: taken as gone. Should it come back, run tailrack-leave there."
}

ssh_trust_register_forget() { rm -rf "$STATE_DIR/members/$NODE_NAME"; }
