#!/bin/bash
# uses: monitoring/remove
# What was collected of the cluster goes with it.

monitoring_leave() {
    remove_exporter
    remove_prometheus
    rm -rf /var/lib/tailrack-prometheus /var/lib/private/tailrack-prometheus
}
