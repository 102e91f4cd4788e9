#!/bin/bash
# uses: machine/retire
# No dashboards any more. Part of tailrack-leave too, so it uses nothing of base.sh; called again, it does no harm.

# One folder a release, by the checksum of its archive; root's.
GRAFANA_PROGRAMS=/usr/local/lib/tailrack/grafana

# What people have made in it stays, for the day that it is wanted again.
remove_grafana() {
    retire tailrack-grafana.service
    rm -rf /etc/tailrack/grafana "$GRAFANA_PROGRAMS"
}
