#!/bin/bash
# Write the tailnet address of the head node, the only machine whose requests for a proof this one accepts.
#
# HEAD_ADDRESS   tailnet address of the head node

fabric_check_path() { ensure_file "$STATE_DIR/head-address" 0644 root:root "$HEAD_ADDRESS"; }
