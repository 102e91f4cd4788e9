#!/bin/bash
# A node as the head node sees it in the tailnet, whatever the node says of itself.
#
# NODE_ADDRESS   its tailnet address

# Seconds from a node's answer until it is gone: its log-out waits for the control server.
GONE_LIMIT=90

# Gone from the tailnet's list, or logged out and still on it (a list keeps machines that are not ephemeral).
node_logged_out() {
    tailscale status --json | jq -e --arg address "$NODE_ADDRESS" \
        '[.Peer // {} | .[] | select((.TailscaleIPs // [] | index($address)) and .Online and (.Expired | not))] == []' >/dev/null
}
