#!/bin/bash
# uses: monitoring/place machine/daemon
# Node exporter in a unit of its own, at the tailnet's address alone. One that the machine had before is left as it is.
#
# MONITORING_EXPORTER_PORT   where it answers
# MONITORING_EXPORTER_UNIT   text of its unit
# MONITORING_FIGURES, MONITORING_FIGURES_UNIT, MONITORING_FIGURES_TIMER   texts of what it does not know by itself

# The daemons' packages start them at boot, with their own settings: those that came with the cluster do not. Before our unit
# is there alone, so that a person's later word holds.
silence_daemon() {
    [ ! -e "/etc/systemd/system/$2" ] || return 0
    if grep -qsx "$1" "$STATE_DIR/packages"; then systemctl disable -q --now "$1.service"; fi
}

# Tailnet address of this machine, and what is collected here besides, by name
start_exporter() {
    local address=$1 unit=/etc/systemd/system/tailrack-node-exporter.service
    shift
    silence_daemon prometheus-node-exporter tailrack-node-exporter.service
    install -d -m 0755 "$METRICS_DIR"
    ensure_file /etc/tailrack/node-exporter 0644 root:root "ADDRESS=$address
PORT=$MONITORING_EXPORTER_PORT"
    ensure_file "$unit" 0644 root:root "$MONITORING_EXPORTER_UNIT"
    run_daemon tailrack-node-exporter.service "$address" "$MONITORING_EXPORTER_PORT" / monitoring.exporter_port \
        "$unit" /etc/tailrack/node-exporter
    CHANGED=
    ensure_file /usr/local/lib/tailrack/figures 0755 root:root "$MONITORING_FIGURES"
    ensure_file /etc/tailrack/figures 0644 root:root "COLLECTORS=$*"
    ensure_file /etc/systemd/system/tailrack-figures.service 0644 root:root "$MONITORING_FIGURES_UNIT"
    ensure_file /etc/systemd/system/tailrack-figures.timer 0644 root:root "$MONITORING_FIGURES_TIMER"
    reload_units tailrack-figures.service tailrack-figures.timer
    enable_units --now tailrack-figures.timer
    # Not only in a minute; nobody waits for it.
    [ -z "$CHANGED" ] || systemctl start --no-block tailrack-figures.service
}
