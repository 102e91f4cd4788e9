#!/bin/bash
# uses: ssh_trust/authority
# The certificate of a node's SSH host key, and how the head node asks the node to leave the cluster.
#
# NODE_NAME, NODE_ADDRESS, NODE_HOST_KEY, NODE_SSHD_PORT

ssh_trust_member() {
    take_lock
    result certificate "$(json_string "$(certificate_for "$NODE_NAME" "$NODE_ADDRESS" "$NODE_HOST_KEY")")"
}

ask_to_leave() {
    timeout 90 ssh -i "$LEAVE_KEY" -p "$NODE_SSHD_PORT" -o IdentitiesOnly=yes -o BatchMode=yes -o ConnectTimeout=10 \
        -o StrictHostKeyChecking=yes -o "HostKeyAlias=$NODE_NAME" "root@$NODE_ADDRESS"
}

node_answers() { timeout 5 bash -c ": <>/dev/tcp/$NODE_ADDRESS/$NODE_SSHD_PORT"; }

ssh_trust_member_release() {
    take_lock
    ask_to_leave && return
    # It would keep the munge key, and come back into Slurm by itself.
    if node_answers; then
        fail "$NODE_NAME answers at $NODE_ADDRESS and did not leave" \
            "run 'tailrack-leave' as root on $NODE_NAME, then run the same command again"
    fi
    # A machine that is switched off for good cannot be asked; the cluster forgets it all the same.
    note "$NODE_NAME does not answer at $NODE_ADDRESS: taken as gone. Should it come back, run tailrack-leave there."
}

ssh_trust_member_forget() { rm -rf "$STATE_DIR/members/$NODE_NAME"; }
