#!/bin/bash
# The head node asks all members, many at once (tailrack-ask).

ASKED_AT_ONCE=64

members_but_here() {
    local path
    for path in "$STATE_DIR"/members/*/address; do
        [ -e "$path" ] || continue
        path=${path%/address}
        [ "${path##*/}" = "$HOST_NAME" ] || echo "${path##*/}"
    done
}

# Ask members, of stdin, many at once: folder for NODE.said, NODE.why and NODE.yes, file for their stdin
# ({} in it is the name of each), question.
ask_members() {
    # shellcheck disable=SC2016  # for the shell of each
    xargs -r -P "$ASKED_AT_ONCE" -I '{}' bash -c 'rm -f "$2/$1.yes"
        ! timeout -k 2 20 tailrack-ask "$1" "${@:4}" <"$3" >"$2/$1.said" 2>"$2/$1.why" || : >"$2/$1.yes"' - '{}' "$@"
}
