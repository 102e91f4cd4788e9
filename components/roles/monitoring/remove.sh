#!/bin/bash
# uses: monitoring/paths machine/retire
# Remove the monitoring programs. tailrack-leave contains this file too, so it uses nothing from base.sh.

remove_exporter() {
    retire tailrack-figures.timer tailrack-figures.service tailrack-node-exporter.service
    rm -f /etc/tailrack/node-exporter /etc/tailrack/figures /usr/local/lib/tailrack/figures
    rm -rf "$METRICS_DIR"
}

# Its history and silences stay.
remove_alertmanager() {
    retire tailrack-alertmanager.service
    rm -rf /etc/tailrack/alertmanager
}

# The collected data stays, in case monitoring is turned on again.
remove_prometheus() {
    retire tailrack-prometheus.service
    rm -rf /etc/tailrack/prometheus
    rm -f /etc/tailrack/monitoring.json
}
