#!/bin/bash
# uses: munge/keys
# A node that joins anew has the next key at once, since slurmctld does not answer it. While the head node has the last one
# neither reads what the other has sealed.

# Seconds: for asking those who do not answer, and for jobs that are being started (services.sh). A change that nobody goes on
# with does not hold a node for longer.
MUNGE_CHANGES=90

munge_member() {
    [ -e "$MUNGE_NEXT" ] || return 0
    note "the munge key is being changed"
    wait_until "$MUNGE_CHANGES" test ! -e "$MUNGE_NEXT" || note "the munge key has not been changed for ${MUNGE_CHANGES}s; going on with the last one"
}
