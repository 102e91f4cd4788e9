#!/bin/bash
# uses: grafana/remove
# Remove Grafana with its database.

grafana_leave() {
    remove_grafana
    rm -rf /var/lib/tailrack-grafana /var/lib/private/tailrack-grafana
}
