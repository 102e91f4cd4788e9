#!/bin/bash
# uses: grafana/remove
# What people have made in it goes with the cluster.

grafana_leave() {
    remove_grafana
    rm -rf /var/lib/tailrack-grafana /var/lib/private/tailrack-grafana
}
