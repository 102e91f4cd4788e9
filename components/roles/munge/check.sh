#!/bin/bash
# uses: munge/digest foreign_cluster/foreign
# Report a munge key of another cluster, with which this machine could not talk to its present cluster. Only root can
# read the digests of all keys that were written here (keys.py).
#
# MUNGE_CLUSTER   the cluster's name

MUNGE_FILE=/etc/munge/munge.key

# Succeed if the munge key is not this cluster's. The folder may still belong to munge; a link is no key.
foreign_munge_key() {
    [ -e "$MUNGE_FILE" ] && plain_or_none "$MUNGE_FILE" &&
        ! grep -qsxF "$(read_theirs "$MUNGE_FILE" | key_digest) $MUNGE_CLUSTER" "$STATE_DIR/munge.digests"
}

munge_check() { if foreign_munge_key; then found_foreign "a munge key ($MUNGE_FILE)"; fi; }
