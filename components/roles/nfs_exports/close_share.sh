#!/bin/bash
# Restrict access to the share on the machine that serves it, and disarm its files there (templates/tailrack-share).
#
# NFS_EXPORTS_PATH   directory of the share
# USERS_LINES        `name uid gid`, one per line

SHARE_FILE=/etc/tailrack/share

# Apply the config to every mount of the share and to its list of excluded accounts. Mounts in use are changed in place.
close_share() {
    ensure_file "$SHARE_FILE" 0644 root:root "# Written by tailrack.
SHARE='$(cd "$NFS_EXPORTS_PATH" && pwd -P)'
USERS='$(cut -d ' ' -f 2 <<<"$USERS_LINES" | tr '\n' ' ')'"
    /usr/local/sbin/tailrack-share close || fail "cannot close $NFS_EXPORTS_PATH to set-uid programs and to accounts \
that are not users of the cluster" "see the output of tailrack-share in $LOG_DIR/$STEP_NAME.log on $HOST_NAME, then run up again"
}
