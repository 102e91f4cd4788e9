#!/bin/bash
# A node's state in the tailnet as the head node sees it.
#
# NODE_ADDRESS   its tailnet address

# Seconds from a node's answer until it is gone: its logout waits for the control server.
GONE_LIMIT=90

# Succeed if the node is not in the tailnet's list, or in it without a login (machines that are not ephemeral stay listed).
node_logged_out() {
    tailscale status --json | jq -e --arg address "$NODE_ADDRESS" \
        '[.Peer // {} | .[] | select((.TailscaleIPs // [] | index($address)) and .Online and (.Expired | not))] == []' >/dev/null
}
