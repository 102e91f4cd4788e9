#!/bin/bash
# uses: first_contact/others
# Refuse a machine that serves another cluster, with all that the other roles' gates have found of it.
#
# NODE_TAKE_OVER   true where the config says that it may be taken over

first_contact_gate() {
    [ -n "$OF_OTHERS" ] || return 0
    note "of another cluster: $OF_OTHERS"
    [ "$NODE_TAKE_OVER" = true ] || fail "this machine serves another cluster: it has $OF_OTHERS" \
        "take $HOST_NAME out of the config; or, if nobody needs these any more, write take_over: true at it there (they \
are kept in $BACKUP on it)"
}
