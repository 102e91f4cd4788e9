#!/bin/bash
# uses: foreign_cluster/foreign
# Refuse a machine that serves another cluster, and list all that the checks of the other roles have found.
#
# NODE_TAKE_OVER   true if the config allows taking it over

foreign_cluster_check() {
    [ -n "$FOREIGN" ] || return 0
    note "of another cluster: $FOREIGN"
    [ "$NODE_TAKE_OVER" = true ] || fail "this machine serves another cluster: it has $FOREIGN" \
        "remove $HOST_NAME from the config; or, if these are no longer needed, set take_over: true for it there (they \
are kept in $BACKUP on it)"
}
