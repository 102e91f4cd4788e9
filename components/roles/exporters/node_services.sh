#!/bin/bash
# uses: monitoring/exporter
# What is there to be asked for on a node. Nothing waits for it.
#
# NODE_ADDRESS   its tailnet address

exporters_node_services() {
    start_exporter "$NODE_ADDRESS" tailnet gpus certificate
}
