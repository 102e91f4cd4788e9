#!/bin/bash
# uses: monitoring/remove
# What was collected of the cluster goes with it, and what was told.

monitoring_leave() {
    remove_exporter
    remove_prometheus
    remove_alertmanager
    rm -rf /var/lib/tailrack-prometheus /var/lib/private/tailrack-prometheus
    rm -rf /var/lib/tailrack-alertmanager /var/lib/private/tailrack-alertmanager
}
