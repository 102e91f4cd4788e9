#!/bin/bash
# What is inside a home is its user's: root opens, writes and owns nothing there. Commands run as the user, who may
# have put a link, a FIFO or a directory wherever a file is looked for; so each is bounded in time, and what goes wrong
# there is that user's trouble and nobody else's.

# Seconds for what is done in one home.
HOME_LIMIT=30

# Run bash as a user in the user's home on the share: name, home, commands.
# shellcheck disable=SC2016  # expanded by the user's bash
in_home() {
    local name=$1 home=$2 commands=$3
    as_user "$name" "$HOME_LIMIT" 65536 env HOME="$home" PATH=/usr/bin:/bin \
        bash --norc --noprofile -euc 'cd "$HOME"; '"$commands" </dev/null
}
