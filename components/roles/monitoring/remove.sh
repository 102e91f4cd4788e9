#!/bin/bash
# uses: monitoring/place machine/retire
# Nothing is collected any more. Part of tailrack-leave too, so it uses nothing of base.sh; called again, it does no harm.

remove_exporter() {
    retire tailrack-figures.timer tailrack-figures.service tailrack-node-exporter.service
    rm -f /etc/tailrack/node-exporter /etc/tailrack/figures /usr/local/lib/tailrack/figures
    rm -rf "$METRICS_DIR"
}

# What it has told, and who silenced what, stays too.
remove_alertmanager() {
    retire tailrack-alertmanager.service
    rm -rf /etc/tailrack/alertmanager
}

# What has been collected stays, for the day that it is wanted again.
remove_prometheus() {
    retire tailrack-prometheus.service
    rm -rf /etc/tailrack/prometheus
    rm -f /etc/tailrack/monitoring.json
}
