#!/bin/bash
# uses: clock/compare
# A node's clock beside the head node's.
#
# HEAD_ADDRESS   tailnet address of the head node

# Seconds that the two may differ. A machine that keeps its time is right within one.
CLOCK_LIMIT=10

# The head node's tailscaled answers HTTP at an address that it tells its peers.
clock_of_head() {
    local port
    port=$(tailscale status --json |
        jq -r --arg address "$HEAD_ADDRESS" '.Peer[] | .PeerAPIURL[]? | select(startswith("http://" + $address + ":")) | split(":")[2]')
    [ -n "$port" ] && http_time "$HEAD_ADDRESS" "$port"
}

compare_with_head() {
    local theirs
    if theirs=$(clock_of_head); then
        require_clock "$theirs" "$CLOCK_LIMIT" "the head node's"
    else
        note "the head node does not tell its time at $HEAD_ADDRESS; clocks are not compared"
    fi
}
