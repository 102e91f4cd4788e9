#!/bin/bash
# uses: machine/retire
# Remove Grafana. tailrack-leave contains this, so it uses nothing from base.sh. It is safe to run twice.

# Root's folder with one folder for each release, named by the checksum of its archive.
GRAFANA_PROGRAMS=/usr/local/lib/tailrack/grafana

# The database with users' dashboards stays, in case the config enables Grafana again.
remove_grafana() {
    retire tailrack-grafana.service
    rm -rf /etc/tailrack/grafana "$GRAFANA_PROGRAMS"
}
