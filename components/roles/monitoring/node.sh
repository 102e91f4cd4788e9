#!/bin/bash
# uses: monitoring/remove
# Where the config asks for none any more. (Where it does, that is a step of its own, for which nothing waits: role exporters.)
#
# MONITORING_ENABLED

monitoring_node() {
    [ "$MONITORING_ENABLED" = true ] || remove_exporter
}
