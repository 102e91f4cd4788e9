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

# Sign a host key for a node's names; print the certificate. Signed once: the same key gives the same certificate.
certificate_for() {
    local node=$1 address=$2 host_key=$3 directory="$STATE_DIR/members/$1" principals
    principals="$node,$address"
    mkdir -p "$directory"
    if [ "$(cat "$directory/signed" 2>/dev/null)" != "$principals $host_key" ]; then
        printf '%s\n' "$host_key" >"$directory/key.pub"
        ssh-keygen -q -s "$AUTHORITY_KEY" -h -I "$node" -n "$principals" "$directory/key.pub"
        printf '%s\n' "$principals $host_key" >"$directory/signed"
    fi
    cat "$directory/key-cert.pub"
}
