#!/bin/bash
# Where a machine's munge keys lie.

MUNGE_FILE=/etc/munge/munge.key
# The key that all machines change to at one moment (services.sh).
MUNGE_NEXT=$MUNGE_FILE.next
# On the head node: members that have not yet shown that they have the key, one a line.
MUNGE_LATE=$STATE_DIR/munge.late
