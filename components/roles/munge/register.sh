#!/bin/bash
# uses: munge/keys munge/digest names/publish
# A node's place on the head node while the munge key is changed: neither reads what the other has sealed until both have
# the same one.
#
# NODE_NAME, NODE_ADDRESS

# Seconds: for asking those who do not answer, and for jobs that are being started (services.sh). A change that nobody goes on
# with does not hold a node for longer.
MUNGE_CHANGES=90

munge_register() {
    [ ! -d "${MUNGE_FILE%/*}" ] || take_munge_folder
    if [ -e "$MUNGE_NEXT" ]; then
        note "the munge key is being changed"
        wait_until "$MUNGE_CHANGES" test ! -e "$MUNGE_NEXT" ||
            note "the munge key has not been changed for ${MUNGE_CHANGES}s; going on with the last one"
    fi
    if [ -e "$MUNGE_NEXT" ] || ! grep -qsxF "$NODE_NAME" "$MUNGE_LATE"; then return 0; fi
    # One that has another address since was asked where it is no longer, and slurmctld answers it by the last key still.
    note "$NODE_NAME did not get the munge key with the others"
    keep_name "$NODE_NAME" "$NODE_ADDRESS"
    wait_until "$MUNGE_CHANGES" hand_the_key || note "$NODE_NAME does not show that it has the key"
}

hand_the_key() {
    tailrack-ask "$NODE_NAME" munge-next <"$MUNGE_FILE" &&
        tailrack-ask "$NODE_NAME" munge-switch "$(key_digest <"$MUNGE_FILE")" </dev/null | unmunge >/dev/null
}
