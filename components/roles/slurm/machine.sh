#!/bin/bash
# A service that keeps the clock right, on machines that keep a clock of their own.

# Each of these takes the place of the others.
CLOCK_SERVICES="systemd-timesyncd chrony ntpsec ntp openntpd"

clock_service() {
    local name
    for name in $CLOCK_SERVICES; do
        if systemctl -q is-enabled "$name" 2>/dev/null; then
            printf '%s' "$name"
            return
        fi
    done
    return 1
}

slurm_machine() {
    # A container has its host's clock.
    if systemd-detect-virt -cq; then return; fi
    local name
    if ! name=$(clock_service); then
        ensure_packages systemd-timesyncd
        name=systemd-timesyncd
        systemctl enable -q "$name"
    fi
    systemctl -q is-active "$name" || systemctl start "$name" || note "$name does not start; see 'journalctl -u $name'"
}
