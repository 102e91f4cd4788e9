#!/bin/bash
# uses: clock/compare
# Compare a node's clock with the head node's.
#
# HEAD_ADDRESS   tailnet address of the head node

# Allowed difference in seconds. A working time service stays within one.
CLOCK_LIMIT=10

# The head node's tailscaled answers HTTP at an address that `tailscale status` shows.
clock_of_head() {
    local port
    port=$(tailscale status --json |
        jq -r --arg address "$HEAD_ADDRESS" '.Peer[] | .PeerAPIURL[]? | select(startswith("http://" + $address + ":")) | split(":")[2]')
    [ -n "$port" ] && http_time "$HEAD_ADDRESS" "$port"
}

compare_with_head() {
    local head_time
    if head_time=$(clock_of_head); then
        require_clock "$head_time" "$CLOCK_LIMIT" "the head node's"
    else
        note "the head node sends no time at $HEAD_ADDRESS; clocks are not compared"
    fi
}
