#!/bin/bash
# uses: monitoring/remove
# Remove node exporter if the config has no monitoring. Role exporters installs it, in a step that nothing waits for.
#
# MONITORING_ENABLED

monitoring_node() {
    [ "$MONITORING_ENABLED" = true ] || remove_exporter
}
