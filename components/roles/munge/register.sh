#!/bin/bash
# uses: munge/keys munge/digest names/publish
# Hand the munge key to a node that missed a key change. Until both have the same key, neither can read the other's
# messages.
#
# NODE_NAME, NODE_ADDRESS

# Seconds to wait for silent nodes and for starting jobs (services.sh). An abandoned change does not hold a node longer.
MUNGE_CHANGES=90

munge_register() {
    [ ! -d "${MUNGE_FILE%/*}" ] || take_munge_folder
    if [ -e "$MUNGE_NEXT" ]; then
        note "the munge key is being changed"
        wait_until "$MUNGE_CHANGES" test ! -e "$MUNGE_NEXT" ||
            note "the munge key change was not finished in ${MUNGE_CHANGES}s; continuing with the old key"
    fi
    if [ -e "$MUNGE_NEXT" ] || ! grep -qsxF "$NODE_NAME" "$MUNGE_LATE"; then return 0; fi
    # A node with a new address was asked at the old one, and slurmctld still talks to it with the old key.
    note "$NODE_NAME missed the munge key change; sending the key"
    keep_name "$NODE_NAME" "$NODE_ADDRESS"
    wait_until "$MUNGE_CHANGES" send_key || note "$NODE_NAME does not prove that it has the key"
}

send_key() {
    tailrack-ask "$NODE_NAME" munge-next <"$MUNGE_FILE" &&
        tailrack-ask "$NODE_NAME" munge-switch "$(key_digest <"$MUNGE_FILE")" </dev/null | unmunge >/dev/null
}
