#!/bin/bash
# uses: monitoring/remove
# Remove monitoring with all collected data and Alertmanager's history.

monitoring_leave() {
    remove_exporter
    remove_prometheus
    remove_alertmanager
    rm -rf /var/lib/tailrack-prometheus /var/lib/private/tailrack-prometheus
    rm -rf /var/lib/tailrack-alertmanager /var/lib/private/tailrack-alertmanager
}
