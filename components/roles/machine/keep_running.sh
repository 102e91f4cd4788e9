#!/bin/bash
# Restart settings of the daemons that the cluster needs.

# Make systemd always restart these units. Its default is to stop after five starts in ten seconds, and most packages
# restart their daemons only in some cases or never. The delay grows; a systemd before 254 uses the first delay. Running
# daemons go on.
keep_running() {
    local unit changed=${CHANGED:-}
    for unit in "$@"; do
        ensure_file "/etc/systemd/system/$unit.d/tailrack-restart.conf" 0644 root:root "# Written by tailrack: always restart.
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
    CHANGED=$changed
}
