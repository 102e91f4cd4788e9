#!/bin/bash
# A member as Prometheus is to ask it: a file of its own. Which ports it has is said once for all (templates/prometheus.yml).
#
# NODE_NAME, NODE_SITE

# On the head node. Prometheus sees by itself when a file comes, changes or goes.
TARGETS_DIR=/var/lib/tailrack/monitoring/targets

# Its tailnet address
write_scrape_target() {
    ensure_file "$TARGETS_DIR/$NODE_NAME.json" 0644 root:root \
        "[{\"targets\":[$(json_string "$1")],\"labels\":{\"instance\":$(json_string "$NODE_NAME"),\"site\":$(json_string "$NODE_SITE")}}]"
}
