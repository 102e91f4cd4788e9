#!/bin/bash
# The time service of a machine that has a clock.

# They exclude each other.
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

# A container uses its host's clock.
has_no_clock() { systemd-detect-virt -cq; }

# Print how to repair this machine's clock. Argument: the right time in seconds.
clock_remedy() {
    local name
    if has_no_clock; then
        printf 'set the clock of the machine that the container %s runs on' "$HOST_NAME"
    elif ! name=$(clock_service); then
        printf "no time service runs on %s, and up installs one only if the clock is near enough: set it once there with date -u -s '%s'" \
            "$HOST_NAME" "$(date -u -d "@$1" '+%F %T')"
    else
        printf 'its time service %s does not keep it right: ' "$name"
        case $name in
        systemd-timesyncd) printf "see 'timedatectl timesync-status', run 'systemctl restart systemd-timesyncd'" ;;
        chrony) printf "see 'chronyc sources', run 'chronyc makestep'" ;;
        *) printf "see 'journalctl -u %s', run 'systemctl restart %s'" "$name" "$name" ;;
        esac
        printf ' on %s (it needs outgoing UDP 123)' "$HOST_NAME"
    fi
}
