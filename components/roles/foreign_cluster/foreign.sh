#!/bin/bash
# Files of another cluster: the check step reports them, and other steps set them aside before they write theirs.

# Only root can read it, because it can contain keys.
BACKUP=$STATE_DIR/backup
FOREIGN=''

found_foreign() { FOREIGN+=${FOREIGN:+, }$1; }

# Move a file or directory into the backup without overwriting anything there.
set_aside() {
    install -d -m 0700 "$BACKUP"
    mkdir -p "$(dirname "$BACKUP$1")"
    mv -T --backup=numbered "$1" "$BACKUP$1"
    note "moved $1 of another cluster to $BACKUP$1"
}
