#!/bin/bash
# The command for whoever looks after the cluster, on the head node.
#
# TAILRACK_COMMAND_PROGRAM   its text

tailrack_command_services() {
    ensure_file /usr/local/bin/tailrack 0755 root:root "$TAILRACK_COMMAND_PROGRAM"
}
