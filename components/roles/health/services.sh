#!/bin/bash
# uses: health/remove_deep_check
# Install the benchmark check and its timer on the head node, if the config turns it on.
#
# HEAD_DEEP_CHECK   its settings as JSON; empty if it is off

health_services() {
    if [ -z "$HEAD_DEEP_CHECK" ]; then
        remove_deep_check
        return
    fi
    install -d -m 0700 "$STATE_DIR/deep-check"
    ensure_file /etc/tailrack/deep-check.json 0600 root:root "$HEAD_DEEP_CHECK"
    reload_units tailrack-deep-check.service tailrack-deep-check.timer
    enable_units --now tailrack-deep-check.timer
}
