#!/bin/bash
# Remove a leaving node's record of the benchmark check.
#
# NODE_NAME

health_register() { :; }

health_register_forget() { rm -f "$STATE_DIR/deep-check/$NODE_NAME.json"; }
