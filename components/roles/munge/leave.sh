#!/bin/bash
# Forget the cluster's key.

munge_leave() {
    systemctl disable -q --now munge
    rm -f /etc/munge/munge.key /etc/munge/munge.key.next /var/lib/tailrack/munge.digests
}
