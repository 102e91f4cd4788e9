#!/bin/bash
# Send requests from the head node to all members in parallel (tailrack-ask).

ASKED_AT_ONCE=64

# Send a request to the members on stdin, in parallel. Words: a folder for NODE.said (output), NODE.why (errors) and NODE.yes
# (success), a file for their stdin ({} in its name is the node), the request.
ask_members() {
    # shellcheck disable=SC2016  # for the shell of each
    xargs -r -P "$ASKED_AT_ONCE" -I '{}' bash -c 'rm -f "$2/$1.yes"
        ! timeout -k 2 20 tailrack-ask "$1" "${@:4}" <"$3" >"$2/$1.said" 2>"$2/$1.why" || : >"$2/$1.yes"' - '{}' "$@"
}
