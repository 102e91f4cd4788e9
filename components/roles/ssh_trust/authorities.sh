#!/bin/bash
# Whom this machine trusts as the cluster's authority: a line `# NUMBER`, then a key a line, two of them while one takes the place
# of the other (turn.sh). The number grows with each change, so that what was said earlier and comes later changes nothing.
# Part of programs of their own too, so it uses nothing of base.sh.

AUTHORITIES=/etc/ssh/tailrack_authority.pub
# All that opens root to the head node's address.
LEAVE_KEY_FILE=/etc/ssh/tailrack_leave_key

sound_authorities() {
    local form=$'^# [1-9][0-9]{0,17}(\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9+/]{43}){1,3}$'
    [[ $1 =~ $form ]]
}

# The number of the list that is here; 0 for none, and for the key that an earlier version wrote.
authorities_number() { sed -n '1s/^# \([0-9]*\)$/\1/p' "$AUTHORITIES" 2>/dev/null | grep . || echo 0; }

# A step and the head node's question may come at once.
alone_with_authorities() (
    install -d -m 0700 /run/tailrack-private
    mkdir -p "${AUTHORITIES%/*}"
    exec 8>/run/tailrack-private/authorities.lock
    flock -w 60 8 && "$@"
)

# Trust a list, where it is none of before.
take_authorities() {
    local number=${1%%$'\n'*} fresh
    [ "${number#\# }" -gt "$(authorities_number)" ] || return 0
    fresh=$(mktemp "$AUTHORITIES.XXXXXX") && printf '%s\n' "$1" >"$fresh" && put_key_file "$fresh" "$AUTHORITIES"
}

put_key_file() {
    if chmod 0644 "$1" && mv -fT "$1" "$2"; then return 0; fi
    rm -f "$1"
    return 1
}

# Let whoever has one of the authorities sign for tailrack-ask ask this machine: from which address, and the line of
# the leave key, which stays as it is.
let_authorities_ask() {
    local fresh words='cert-authority,principals="tailrack-ask",command="/usr/local/sbin/tailrack-answer"'
    fresh=$(mktemp "$LEAVE_KEY_FILE.XXXXXX") && printf '%s\n' "$2" >"$fresh" &&
        sed -n "s|^ssh-.*|restrict,from=\"$1\",$words & tailrack-ask|p" "$AUTHORITIES" >>"$fresh" &&
        put_key_file "$fresh" "$LEAVE_KEY_FILE"
}
