#!/bin/bash
# Forget the cluster's key.

munge_leave() {
    systemctl disable -q --now munge
    rm -f /etc/munge/munge.key /var/lib/tailrack/munge.digests
}
