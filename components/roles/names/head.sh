#!/bin/bash
# uses: names/publish
# Add the head node's name to the list, as the first.
#
# HEAD_ADDRESS   the head node's tailnet address

names_head() {
    local path names
    rm -f "$STATE_DIR/names-from"
    keep_name "$HOST_NAME" "$HEAD_ADDRESS"
    # Members that joined before addresses were stored: their certificates contain name and address.
    for path in "$STATE_DIR"/members/*/signed; do
        [ -e "$path" ] && [ ! -e "${path%/*}/address" ] || continue
        read -r names _ <"$path"
        keep_name "${names%%,*}" "${names#*,}"
    done
    publish_names
}
