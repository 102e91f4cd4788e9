#!/bin/bash
# The SSH authorities that this machine trusts: a line `# NUMBER`, one line per key, then a line `# leave KEY` with the head node's
# key for tailrack-leave. During a change there are two of each (turn.py). The number grows with each change, so a delayed older
# list is ignored. Also part of separate programs, so it uses nothing of base.sh.

AUTHORITIES=/etc/ssh/tailrack_authority.pub
# The only keys with which the head node can log in as root.
LEAVE_KEY_FILE=/etc/ssh/tailrack_leave_key

sound_authorities() {
    local key='ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9+/]{43}' form
    form=$'^# [1-9][0-9]{0,17}(\n'"$key){1,3}("$'\n# leave '"$key){1,2}\$"
    [[ $1 =~ $form ]]
}

# Print the number of the current list; 0 without one, and for the single key of an earlier version.
authorities_number() { sed -n '1s/^# \([0-9]*\)$/\1/p' "$AUTHORITIES" 2>/dev/null | grep . || echo 0; }

# Run a command under a lock: a step and a request of the head node may arrive at the same time.
alone_with_authorities() (
    install -d -m 0700 /run/tailrack-private
    mkdir -p "${AUTHORITIES%/*}"
    exec 8>/run/tailrack-private/authorities.lock
    flock -w 60 8 && "$@"
)

# Store a list if its number is higher than the current one.
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

# Authorize the leave keys for tailrack-leave, and certificates that an authority signed for tailrack-ask, from the address $1.
let_authorities_ask() {
    local fresh from="restrict,from=\"$1\"" leave='command="/usr/local/sbin/tailrack-leave"'
    local ask='cert-authority,principals="tailrack-ask",command="/usr/local/sbin/tailrack-answer"'
    fresh=$(mktemp "$LEAVE_KEY_FILE.XXXXXX") &&
        sed -n "s|^# leave \(ssh-.*\)|$from,$leave \1 tailrack-leave|p" "$AUTHORITIES" >"$fresh" &&
        sed -n "s|^ssh-.*|$from,$ask & tailrack-ask|p" "$AUTHORITIES" >>"$fresh" && put_key_file "$fresh" "$LEAVE_KEY_FILE"
}
