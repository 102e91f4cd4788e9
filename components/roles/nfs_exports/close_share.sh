#!/bin/bash
# Who may enter the share on the machine that serves it, and by what its files are no danger there (templates/tailrack-share).
#
# NFS_EXPORTS_PATH   directory of the share
# USERS_LINES        `name uid gid`, one a line

SHARE_FILE=/etc/tailrack/share

# Bring every way to the share, and its list of who is kept out, to what the config says; what is mounted is mended where
# it is, in use or not.
close_share() {
    ensure_file "$SHARE_FILE" 0644 root:root "# Written by tailrack.
SHARE='$(cd "$NFS_EXPORTS_PATH" && pwd -P)'
USERS='$(cut -d ' ' -f 2 <<<"$USERS_LINES" | tr '\n' ' ')'"
    /usr/local/sbin/tailrack-share close || fail "$NFS_EXPORTS_PATH cannot be closed to set-uid programs and to accounts \
that are no users of the cluster" "see what tailrack-share said in $LOG_DIR/$STEP_NAME.log on $HOST_NAME, then run up again"
}
