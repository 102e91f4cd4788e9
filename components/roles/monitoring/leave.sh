#!/bin/bash
# uses: monitoring/remove
# What was collected of the cluster goes with it.

monitoring_leave() {
    remove_exporter
    remove_prometheus
    remove_alertmanager
    rm -rf /var/lib/{,private/}tailrack-{prometheus,alertmanager}
}
