#!/bin/bash
# The command for whoever looks after the cluster, on the head node.
#
# TOOLS_PROGRAM   its text

tools_services() {
    ensure_file /usr/local/bin/tailrack 0755 root:root "$TOOLS_PROGRAM"
}
