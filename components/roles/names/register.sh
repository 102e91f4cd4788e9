#!/bin/bash
# uses: names/publish
# Remove a node from the head node's list of names, for tailrack-expire (components/roles/slurm/expire.sh).
#
# NODE_NAME

names_register_forget() {
    rm -f "$STATE_DIR/members/$NODE_NAME/address"
    publish_names
}
