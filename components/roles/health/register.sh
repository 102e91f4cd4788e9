#!/bin/bash
# What the deep check remembers of a node goes with it.
#
# NODE_NAME

health_register() { :; }

health_register_forget() { rm -f "$STATE_DIR/deep-check/$NODE_NAME.json"; }
