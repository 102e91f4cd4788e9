#!/bin/bash
# uses: monitoring/target
# Write a member's scrape target. It exists even without monitoring in the config.
#
# NODE_ADDRESS   its tailnet address

monitoring_register() {
    write_scrape_target "$NODE_ADDRESS"
}

monitoring_register_forget() {
    rm -f "$TARGETS_DIR/$NODE_NAME.json"
}
