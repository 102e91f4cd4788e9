#!/bin/bash
# uses: clock/service
# Install a time service if the machine has none, before the tailnet's certificates, the comparison with the head node's
# clock and the munge key need the right time.

# Seconds for a new time service to set the clock.
CLOCK_SET_LIMIT=20

clock_is_set() { [ "$(timedatectl show -p NTPSynchronized --value)" = yes ]; }

clock_join() {
    local name
    if has_no_clock; then return; fi
    if ! name=$(clock_service); then
        ensure_packages systemd-timesyncd
        name=systemd-timesyncd
        systemctl enable -q "$name"
    fi
    if systemctl -q is-active "$name"; then return; fi
    if systemctl start "$name"; then
        wait_until "$CLOCK_SET_LIMIT" clock_is_set || note "$name has not set the clock within ${CLOCK_SET_LIMIT}s"
    else
        note "$name does not start; see 'journalctl -u $name'"
    fi
}
