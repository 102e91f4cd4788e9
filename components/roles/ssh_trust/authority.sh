#!/bin/bash
# Two keys that live on the head node alone: the authority that signs nodes' SSH host keys, and the key with which
# the head node may ask a node for one thing, to leave the cluster.

AUTHORITY_KEY=$STATE_DIR/ssh_authority
LEAVE_KEY=$STATE_DIR/leave_key

ensure_authority() {
    local key
    chmod 0711 "$STATE_DIR"
    for key in "$AUTHORITY_KEY" "$LEAVE_KEY"; do
        # The public half is written last, so a key without it is half made.
        [ -s "$key.pub" ] && continue
        rm -f "$key"
        ssh-keygen -q -t ed25519 -N '' -C "tailrack $(basename "$key")" -f "$key"
        note "made $key"
    done
}

public_key() { cut -d' ' -f1,2 "$1.pub"; }

# The certificate of a host key: node, its name and address with a comma between, key.
certificate_for() { /usr/local/sbin/tailrack-sign "$@"; }
