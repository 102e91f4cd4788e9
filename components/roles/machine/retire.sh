#!/bin/bash
# How units end when the cluster leaves. Part of tailrack-leave too, so it uses nothing of base.sh; called again, it does no harm.

# Units that the cluster has made: stopped, and gone with their files.
retire() {
    local unit gone=''
    for unit in "$@"; do
        [ -e "/etc/systemd/system/$unit" ] || continue
        gone=yes
        # Of a template only its instances run, each as long as it has work.
        [[ $unit == *@.* ]] || systemctl disable -q --now "$unit"
        rm -f "/etc/systemd/system/$unit"
    done
    [ -z "$gone" ] || systemctl daemon-reload
}

# A package's daemon that works for the cluster: stopped, and not started at the next boot. What was added to its unit goes
# last (role machine): by that it is known whose it is.
retire_daemon() {
    [ -e "/etc/systemd/system/$1.service.d/tailrack.conf" ] || return 0
    systemctl disable -q --now "$1.service"
}
