#!/bin/bash
# uses: monitoring/paths machine/daemon
# Run node exporter in a unit of tailrack's, on the tailnet address only. A node exporter that the machine had before
# stays.
#
# MONITORING_EXPORTER_PORT   its port
# MONITORING_EXPORTER_UNIT   text of its unit
# MONITORING_FIGURES, MONITORING_FIGURES_UNIT, MONITORING_FIGURES_TIMER   texts of tailrack-figures and its units

# Stop and disable the unit of a package that tailrack installed. Only before tailrack's own unit exists, so that a
# person can enable the package's unit later. $1: the package's unit, $2: tailrack's unit
silence_daemon() {
    [ ! -e "/etc/systemd/system/$2" ] || return 0
    if grep -qsx "$1" "$STATE_DIR/packages"; then systemctl disable -q --now "$1.service"; fi
}

# $1: tailnet address of this machine; others: the collectors of tailrack-figures to run here
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
    # Run it now instead of in a minute, without waiting for it.
    [ -z "$CHANGED" ] || systemctl start --no-block tailrack-figures.service
}
