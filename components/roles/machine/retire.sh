#!/bin/bash
# Stop and remove units. tailrack-leave contains this, so it uses nothing from base.sh. It is safe to run twice.

# Stop units that the cluster created, and remove their files.
retire() {
    local unit removed=''
    for unit in "$@"; do
        [ -e "/etc/systemd/system/$unit" ] || continue
        removed=yes
        # A template itself does not run; its instances end when their work is done.
        [[ $unit == *@.* ]] || systemctl disable -q --now "$unit"
        rm -f "/etc/systemd/system/$unit"
    done
    [ -z "$removed" ] || systemctl daemon-reload
}

