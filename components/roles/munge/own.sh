#!/bin/bash
# uses: first_contact/others
# Which munge key is ours: the digests of those that were written here are kept, for root alone.

MUNGE_FILE=/etc/munge/munge.key
MUNGE_DIGESTS=$STATE_DIR/munge.digests

munge_key_of_others() { [ -e "$MUNGE_FILE" ] && ! grep -qsxF "$(sha256sum <"$MUNGE_FILE")" "$MUNGE_DIGESTS"; }
