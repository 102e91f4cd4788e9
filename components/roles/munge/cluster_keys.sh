#!/bin/bash
# uses: munge/digest munge/keys foreign_cluster/foreign
# Recognize the cluster's munge keys by the digests of all keys that were written here. Only root can read the digests.
#
# MUNGE_CLUSTER   the cluster's name

# `digest cluster`, one per line: a cluster's next key is its own too; a key of another tailrack cluster is not.
MUNGE_DIGESTS=$STATE_DIR/munge.digests

munge_digest() { printf '%s %s' "$(key_digest)" "$MUNGE_CLUSTER"; }

# Succeed if the munge key is not this cluster's. Runs before any change too, when the folder may still belong to munge;
# a link is no key (take_munge_folder).
foreign_munge_key() {
    [ -e "$MUNGE_FILE" ] && plain_or_none "$MUNGE_FILE" &&
        ! grep -qsxF "$(read_theirs "$MUNGE_FILE" | munge_digest)" "$MUNGE_DIGESTS"
}
