#!/bin/bash
# A member is known by what the head node sees of it in the tailnet, not by what it says of itself.
#
# NODE_NAME, NODE_ADDRESS

# The machine of this name has this address, in the head node's own list of the tailnet's machines.
node_is_at_its_address() {
    tailscale status --json | jq -e --arg name "$NODE_NAME" --arg address "$NODE_ADDRESS" \
        '[.Peer[]? | select((.DNSName | split(".")[0]) == $name and (.TailscaleIPs | index($address)))] | length == 1' \
        >/dev/null
}

tailnet_member() {
    # The list follows the control server's with some delay.
    wait_until 30 node_is_at_its_address ||
        fail "the tailnet knows no machine $NODE_NAME at $NODE_ADDRESS, where $NODE_NAME says it is" \
            "see 'tailscale status' on $HOST_NAME; a name that was taken already ($NODE_NAME-1) is freed by removing the old machine there"
}
