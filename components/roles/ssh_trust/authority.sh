#!/bin/bash
# Two keys that exist only on the head node: the authority that signs the nodes' SSH host keys, and the key with which the head
# node asks a node to leave the cluster. Both are replaced together (turn.sh).

AUTHORITY_KEY=$STATE_DIR/ssh_authority
LEAVE_KEY=$STATE_DIR/leave_key
# The list that all machines must trust, in their format (authorities.sh).
AUTHORITY_TRUSTED=$STATE_DIR/ssh_authority.trusted
# The authority's generation (turn.sh). Empty for a new authority, which takes the generation of the config.
AUTHORITY_GENERATION=$STATE_DIR/ssh_authority.generation

ensure_authority() {
    local key
    chmod 0711 "$STATE_DIR"
    for key in "$AUTHORITY_KEY" "$LEAVE_KEY"; do
        # ssh-keygen writes the public key last, so a key without it is incomplete.
        [ -s "$key.pub" ] && continue
        rm -f "$key"
        [ "$key" != "$AUTHORITY_KEY" ] || : >"$AUTHORITY_GENERATION"
        ssh-keygen -q -t ed25519 -N '' -C "tailrack $(basename "$key")" -f "$key"
        note "created $key"
    done
}

# Write the list with a new number if its keys have changed, or after a restore from a backup: nodes may already have a newer list
# than the backup.
keep_authorities() {
    local keys number now
    keys=$(public_keys "$AUTHORITY_KEY"{,.next,.last}.pub && public_keys "$LEAVE_KEY"{,.next}.pub | sed 's/^/# leave /')
    if [ "$(sed 1d "$AUTHORITY_TRUSTED" 2>/dev/null)" = "$keys" ] &&
        [ ! "$STATE_DIR/restored" -nt "$AUTHORITY_TRUSTED" ]; then return 0; fi
    number=$(sed -n '1s/^# //p' "$AUTHORITY_TRUSTED" 2>/dev/null) || :
    now=$(date +%s)
    ensure_file "$AUTHORITY_TRUSTED" 0644 root:root "# $((${number:-0} < now ? now : number + 1))"$'\n'"$keys"
}

# Print the public keys of the files that exist.
public_keys() { { cat "$@" 2>/dev/null || :; } | cut -d' ' -f1,2 | sort -u; }
public_key() { cut -d' ' -f1,2 "$1.pub"; }

# Print the certificate of a host key: node, principals (NAME,ADDRESS), key.
certificate_for() { /usr/local/sbin/tailrack-sign "$@"; }
