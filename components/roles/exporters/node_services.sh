#!/bin/bash
# uses: monitoring/exporter
# Start the node's exporter of metrics. Nothing waits for it.
#
# NODE_ADDRESS   the node's tailnet address

exporters_node_services() {
    start_exporter "$NODE_ADDRESS" tailnet gpus certificate
}
