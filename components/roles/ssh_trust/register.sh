#!/bin/bash
# Remove a node's records, for tailrack-expire (components/roles/slurm/expire.sh).
#
# NODE_NAME

ssh_trust_register_forget() { rm -rf "$STATE_DIR/members/$NODE_NAME"; }
