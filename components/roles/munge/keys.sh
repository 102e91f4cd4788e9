#!/bin/bash
# Where a machine's munge keys lie.

MUNGE_FILE=/etc/munge/munge.key
# The key that all machines change to at one moment (services.sh).
MUNGE_NEXT=$MUNGE_FILE.next
# On the head node: members that have not yet shown that they have the key, one a line.
MUNGE_LATE=$STATE_DIR/munge.late

# Have the keys' folder be root's before root works there: munge's package gives it to munge's account, which then could put
# a link in the place of a key, and root would follow it.
take_munge_folder() {
    local path
    take_folder 0711 "${MUNGE_FILE%/*}"
    for path in "$MUNGE_FILE" "$MUNGE_NEXT"; do
        plain_or_none "$path" || fail \
            "$path is no plain file; nothing was read or written through it" \
            "find out who put it there ('ls -l $path'), take it away, then run up again"
    done
}
