#!/bin/bash
# uses: foreign_cluster/foreign
# Refuse a machine that serves another cluster, with all that the other roles' gates have found of it.
#
# NODE_TAKE_OVER   true where the config says that it may be taken over

foreign_cluster_check() {
    [ -n "$FOREIGN" ] || return 0
    note "of another cluster: $FOREIGN"
    [ "$NODE_TAKE_OVER" = true ] || fail "this machine serves another cluster: it has $FOREIGN" \
        "take $HOST_NAME out of the config; or, if nobody needs these any more, write take_over: true at it there (they \
are kept in $BACKUP on it)"
}
