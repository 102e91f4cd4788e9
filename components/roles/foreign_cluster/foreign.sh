#!/bin/bash
# What is not the cluster's own: said in the gate, and set aside before anything of ours takes its place.

# Read by root alone: there are keys among it.
BACKUP=$STATE_DIR/backup
FOREIGN=''

found_foreign() { FOREIGN+=${FOREIGN:+, }$1; }

# Move a file or a directory of others into the backup, where nothing is overwritten.
set_aside() {
    install -d -m 0700 "$BACKUP"
    mkdir -p "$(dirname "$BACKUP$1")"
    mv -T --backup=numbered "$1" "$BACKUP$1"
    note "$1 was not this cluster's; it is $BACKUP$1 now"
}
