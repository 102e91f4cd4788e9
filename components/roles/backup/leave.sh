#!/bin/bash
# uses: backup/remove
# Remove the backup program and the state that was restored from a backup.

backup_leave() {
    remove_backup
    rm -rf /var/lib/tailrack/restored /var/lib/tailrack/restored-age /var/lib/tailrack/restoring
}
