#!/bin/bash
# uses: names/publish
# Add a node to the head node's list of names, or remove it.
#
# NODE_NAME, NODE_ADDRESS

names_register() {
    take_lock
    keep_name "$NODE_NAME" "$NODE_ADDRESS"
    publish_names
}

names_register_forget() {
    rm -f "$STATE_DIR/members/$NODE_NAME/address"
    publish_names
}
