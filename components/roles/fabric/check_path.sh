#!/bin/bash
# Who may ask this machine to take part in a proof: the head node, known by its address in the tailnet.
#
# HEAD_ADDRESS   the head node's

fabric_check_path() { ensure_file "$STATE_DIR/head-address" 0644 root:root "$HEAD_ADDRESS"; }
