#!/bin/bash
# Where the controller has its nodes.

# Names of the nodes that it places, one a line. A leaf switch shows its line of topology.conf; only the switch above shows
# which nodes really are there. It is looked for in the whole answer: a word behind `topology` is a switch's name up to Slurm
# 24.11, and the topology's own since 25.05 (src/scontrol/info_node.c).
placed_nodes() {
    local nodes
    nodes=$(scontrol show topology | sed -n 's/^SwitchName=tailnet .*Nodes=\([^ ]*\).*/\1/p')
    [ -z "$nodes" ] || scontrol show hostnames "$nodes"
}

placed_node() { placed_nodes | grep -qx "$1"; }
