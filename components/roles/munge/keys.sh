#!/bin/bash
# Paths of a machine's munge keys.

MUNGE_FILE=/etc/munge/munge.key
# The key that all machines switch to at once (services.sh).
MUNGE_NEXT=$MUNGE_FILE.next
# On the head node: members that have not proved the key yet, one per line.
MUNGE_LATE=$STATE_DIR/munge.late

# Give the keys' folder to root before root works there: munge's package gives it to munge's account, which could
# replace a key by a link that root would follow.
take_munge_folder() {
    local path
    take_folder 0711 "${MUNGE_FILE%/*}"
    for path in "$MUNGE_FILE" "$MUNGE_NEXT"; do
        plain_or_none "$path" || fail \
            "$path is not a regular file; nothing was read or written through it" \
            "find out which account created it ('ls -l $path'), remove it, then run up again"
    done
}
