#!/bin/bash
# Two keys that live on the head node alone: the authority that signs nodes' SSH host keys, and the key with which
# the head node may ask a node for one thing, to leave the cluster. Others take their place together (turn.sh).

AUTHORITY_KEY=$STATE_DIR/ssh_authority
LEAVE_KEY=$STATE_DIR/leave_key
# What all machines are to trust, as they keep it (authorities.sh).
AUTHORITY_TRUSTED=$STATE_DIR/ssh_authority.trusted
# The generation that the authority is of (turn.sh). Empty for one that is of whichever the config has.
AUTHORITY_GENERATION=$STATE_DIR/ssh_authority.generation

ensure_authority() {
    local key
    chmod 0711 "$STATE_DIR"
    for key in "$AUTHORITY_KEY" "$LEAVE_KEY"; do
        # The public half is written last, so a key without it is half made.
        [ -s "$key.pub" ] && continue
        rm -f "$key"
        [ "$key" != "$AUTHORITY_KEY" ] || : >"$AUTHORITY_GENERATION"
        ssh-keygen -q -t ed25519 -N '' -C "tailrack $(basename "$key")" -f "$key"
        note "made $key"
    done
}

# Number what all are to trust anew where it is something else. And where this head node was made of a backup: nodes may
# have been told of later authorities than it knows.
keep_authorities() {
    local keys number now
    keys=$(public_keys "$AUTHORITY_KEY"{,.next,.last}.pub && public_keys "$LEAVE_KEY"{,.next}.pub | sed 's/^/# leave /')
    if [ "$(sed 1d "$AUTHORITY_TRUSTED" 2>/dev/null)" = "$keys" ] &&
        [ ! "$STATE_DIR/restored" -nt "$AUTHORITY_TRUSTED" ]; then return 0; fi
    number=$(sed -n '1s/^# //p' "$AUTHORITY_TRUSTED" 2>/dev/null) || :
    now=$(date +%s)
    ensure_file "$AUTHORITY_TRUSTED" 0644 root:root "# $((${number:-0} < now ? now : number + 1))"$'\n'"$keys"
}

# Of files, those that are there.
public_keys() { { cat "$@" 2>/dev/null || :; } | cut -d' ' -f1,2 | sort -u; }
public_key() { cut -d' ' -f1,2 "$1.pub"; }

# The certificate of a host key: node, its name and address with a comma between, key.
certificate_for() { /usr/local/sbin/tailrack-sign "$@"; }
