#!/bin/bash
# Run commands in a user's home as that user: root opens, writes and owns nothing there. The user may have put a link, a FIFO or
# a directory where a file is expected, so each command has a time limit, and a failure concerns only that user.

# Seconds for the commands in one home.
HOME_LIMIT=30

# Run bash commands ($3) as user $1 in the home $2 on the share.
# shellcheck disable=SC2016  # expanded by the user's bash
in_home() {
    local name=$1 home=$2 commands=$3
    as_user "$name" "$HOME_LIMIT" 65536 env HOME="$home" PATH=/usr/bin:/bin \
        bash --norc --noprofile -euc 'cd "$HOME"; '"$commands" </dev/null
}
