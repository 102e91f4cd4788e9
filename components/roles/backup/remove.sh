#!/bin/bash
# uses: machine/retire
# Stop making backups; existing ones stay at the target. tailrack-leave contains this, so it uses nothing from base.sh.

remove_backup() {
    retire tailrack-backup.timer tailrack-backup.service
    rm -rf /etc/tailrack/backup /var/cache/tailrack-backup /var/lib/tailrack/backup-state /var/lib/tailrack/backup-stage
    rm -f /usr/local/sbin/tailrack-backup
}
