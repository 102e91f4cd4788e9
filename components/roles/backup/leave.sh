#!/bin/bash
# uses: backup/remove
# Neither what makes backups stays, nor what one has brought back.

backup_leave() {
    remove_backup
    rm -rf /var/lib/tailrack/restored /var/lib/tailrack/restored-age /var/lib/tailrack/restoring
}
