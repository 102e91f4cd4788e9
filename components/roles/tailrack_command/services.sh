#!/bin/bash
# Install the command `tailrack` on the head node.
#
# TAILRACK_COMMAND_PROGRAM   text of the program

tailrack_command_services() {
    ensure_file /usr/local/bin/tailrack 0755 root:root "$TAILRACK_COMMAND_PROGRAM"
}
