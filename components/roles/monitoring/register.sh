#!/bin/bash
# uses: monitoring/target
# A member can be asked; whether anybody asks is another thing.
#
# NODE_ADDRESS   its tailnet address

monitoring_register() {
    write_scrape_target "$NODE_ADDRESS"
}

monitoring_register_forget() {
    rm -f "$TARGETS_DIR/$NODE_NAME.json"
}
