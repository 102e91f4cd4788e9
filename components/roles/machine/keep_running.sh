#!/bin/bash
# Daemons that the cluster needs never stay dead.

# Have systemd start daemons again whenever they end, however often: units. By itself it gives a unit up after five starts in ten
# seconds, and most packages start theirs again in some cases or in none. Each delay is longer than the last; a systemd before
# 254 knows nothing of that, and keeps to the first. A daemon that runs goes on.
keep_running() {
    local unit known=${CHANGED:-}
    for unit in "$@"; do
        ensure_file "/etc/systemd/system/$unit.d/tailrack-restart.conf" 0644 root:root "# Written by tailrack: it never stays dead.
[Unit]
StartLimitIntervalSec=0

[Service]
Restart=always
RestartPreventExitStatus=
RestartSec=2
RestartSteps=6
RestartMaxDelaySec=20"
    done
    reload_units "$@"
    CHANGED=$known
}
