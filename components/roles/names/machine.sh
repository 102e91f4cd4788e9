#!/bin/bash
# Names of the cluster's nodes, by a unit that runs at every start of tailscaled.
#
# NAMES_RESOLVED_CONF   settings of systemd-resolved

names_machine() {
    ensure_file "$STATE_DIR/node-name" 0644 root:root "$HOST_NAME"
    systemctl daemon-reload
    CHANGED=
    ensure_file /etc/systemd/resolved.conf.d/tailrack.conf 0644 root:root "$NAMES_RESOLVED_CONF"
    if [ -n "$CHANGED" ]; then systemctl try-restart systemd-resolved.service; fi
    systemctl enable -q --now systemd-resolved.service
    systemctl enable -q --now tailrack-names.service
    # Not a restart of the unit: Slurm's daemons require it, and would be restarted with it.
    /usr/local/sbin/tailrack-names
}
