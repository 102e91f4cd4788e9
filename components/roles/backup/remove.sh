#!/bin/bash
# uses: machine/retire
# What makes backups, taken away; those that were made stay where they are. Part of tailrack-leave too, so it uses nothing of
# base.sh.

remove_backup() {
    retire tailrack-backup.timer tailrack-backup.service
    rm -rf /etc/tailrack/backup /var/cache/tailrack-backup /var/lib/tailrack/backup-state /var/lib/tailrack/backup-stage
    rm -f /usr/local/sbin/tailrack-backup
}
