#!/bin/bash
# Remove the cluster's key.

munge_leave() {
    systemctl disable -q --now munge
    rm -f /var/lib/tailrack/munge.digests
    [ -d /etc/munge ] || return 0
    take_folder 0700 /etc/munge
    rm -f /etc/munge/munge.key /etc/munge/munge.key.next
    # The package's owner.
    if id -u munge >/dev/null 2>&1; then chown munge:munge /etc/munge; fi
}
