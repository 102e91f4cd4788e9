#!/bin/bash
# uses: machine/retire
# Backups that were made stay where they are.

backup_leave() {
    retire tailrack-backup.timer tailrack-backup.service
    rm -rf /etc/tailrack/backup /var/cache/tailrack-backup /var/lib/tailrack/backup-state /var/lib/tailrack/backup-stage \
        /var/lib/tailrack/restored /var/lib/tailrack/restoring
    rm -f /usr/local/sbin/tailrack-backup
}
