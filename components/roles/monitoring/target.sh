#!/bin/bash
# Write one target file per member for Prometheus. The ports are the same for all members (services.sh).
#
# NODE_NAME, NODE_SITE

# On the head node. Prometheus watches this folder for changes.
TARGETS_DIR=/var/lib/tailrack/monitoring/targets

# $1: the member's tailnet address
write_scrape_target() {
    ensure_file "$TARGETS_DIR/$NODE_NAME.json" 0644 root:root \
        "[{\"targets\":[$(json_string "$1")],\"labels\":{\"instance\":$(json_string "$NODE_NAME"),\"site\":$(json_string "$NODE_SITE")}}]"
}
