#!/bin/bash
# Whom this machine trusts as the cluster's authority: a line `# NUMBER`, then a key a line, then a line `# leave KEY` with what the
# head node asks it to leave by. Two of each while one takes the place of the other (turn.sh). The number grows with each change,
# so that what was said earlier and comes later changes nothing.
# Part of programs of their own too, so it uses nothing of base.sh.

AUTHORITIES=/etc/ssh/tailrack_authority.pub
# All that opens root to the head node's address.
LEAVE_KEY_FILE=/etc/ssh/tailrack_leave_key

sound_authorities() {
    local key='ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9+/]{43}' form
    form=$'^# [1-9][0-9]{0,17}(\n'"$key){1,3}("$'\n# leave '"$key){1,2}\$"
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

# Let whoever has a leave key ask this machine to leave, and whoever has one of the authorities sign for tailrack-ask ask it
# something: from which address.
let_authorities_ask() {
    local fresh from="restrict,from=\"$1\"" leave='command="/usr/local/sbin/tailrack-leave"'
    local ask='cert-authority,principals="tailrack-ask",command="/usr/local/sbin/tailrack-answer"'
    fresh=$(mktemp "$LEAVE_KEY_FILE.XXXXXX") &&
        sed -n "s|^# leave \(ssh-.*\)|$from,$leave \1 tailrack-leave|p" "$AUTHORITIES" >"$fresh" &&
        sed -n "s|^ssh-.*|$from,$ask & tailrack-ask|p" "$AUTHORITIES" >>"$fresh" && put_key_file "$fresh" "$LEAVE_KEY_FILE"
}
