#!/bin/bash
# uses: munge/digest munge/keys foreign_cluster/foreign
# Which munge key is the cluster's: the digests of those that were written here are kept, for root alone.
#
# MUNGE_CLUSTER   the cluster's name

# `digest cluster`, a line each: a cluster's next key is its own too, and one of another such cluster is not.
MUNGE_DIGESTS=$STATE_DIR/munge.digests

munge_digest() { printf '%s %s' "$(key_digest)" "$MUNGE_CLUSTER"; }

# Also asked before anything here is changed: the folder may be munge's still. A link is nobody's key (take_munge_folder).
munge_key_of_others() {
    [ -e "$MUNGE_FILE" ] && plain_or_none "$MUNGE_FILE" &&
        ! grep -qsxF "$(read_theirs "$MUNGE_FILE" | munge_digest)" "$MUNGE_DIGESTS"
}
