#!/bin/bash
# uses: names/publish
# The head node's own name is the first that it keeps.
#
# HEAD_ADDRESS   its tailnet address

names_head() {
    local path names
    rm -f "$STATE_DIR/names-from"
    keep_name "$HOST_NAME" "$HEAD_ADDRESS"
    # Of members that joined before addresses were kept: their certificates are for name and address.
    for path in "$STATE_DIR"/members/*/signed; do
        [ -e "$path" ] && [ ! -e "${path%/*}/address" ] || continue
        read -r names _ <"$path"
        keep_name "${names%%,*}" "${names#*,}"
    done
    publish_names
}
