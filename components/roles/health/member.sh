#!/bin/bash
# What the deep check remembers of a node goes with it.
#
# NODE_NAME

health_member() { :; }

health_member_forget() { rm -f "$STATE_DIR/deep-check/$NODE_NAME.json"; }
