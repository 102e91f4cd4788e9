#!/bin/bash
# uses: machine/retire
# Remove this role from a machine; the driver stays, and its daemon gets its old state.

# This file exists if the daemon was off before the cluster.
PERSISTENCE_WAS_OFF=/var/lib/tailrack/persistence-was-off

remove_roce_unit() {
    retire tailrack-roce.service
    rm -f /usr/local/sbin/tailrack-roce
}

remove_gpu_units() {
    retire tailrack-gpu.service tailrack-health.timer tailrack-health.service
    rm -f /usr/local/sbin/tailrack-{gpu,health} /run/tailrack/health.json
    [ -e "$PERSISTENCE_WAS_OFF" ] || return 0
    systemctl disable -q --now nvidia-persistenced
    rm -f "$PERSISTENCE_WAS_OFF"
}
