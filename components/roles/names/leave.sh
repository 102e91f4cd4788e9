#!/bin/bash
# uses: machine/retire
# Restore the machine's earlier host name and its /etc/hosts.

names_leave() {
    retire tailrack-names-follow.service tailrack-names.service
    rm -f /etc/cloud/cloud.cfg.d/99-tailrack.cfg
    if [ -e /etc/systemd/resolved.conf.d/tailrack.conf ]; then
        rm /etc/systemd/resolved.conf.d/tailrack.conf
        systemctl try-restart systemd-resolved.service
    fi
    [ ! -e /var/lib/tailrack/host-name-before ] || /usr/local/sbin/tailrack-names forget
    rm -f /usr/local/sbin/tailrack-names /var/lib/tailrack/names /var/lib/tailrack/names-from
}
