#!/bin/bash
# Accept a node's address only if the head node sees the same in the tailnet.
#
# NODE_NAME, NODE_ADDRESS
# NODE_FIREWALL   firewalls found on the node (own_firewall.sh), for the message; empty if none

# slurmd's port. slurmd need not run yet: a closed port refuses at once, a firewall drops silently.
NODE_PORT=6818

# Succeed if the head node's list of the tailnet has this name at this address.
node_is_at_its_address() {
    tailscale status --json | jq -e --arg name "$NODE_NAME" --arg address "$NODE_ADDRESS" \
        '[.Peer[]? | select((.DNSName | split(".")[0]) == $name and (.TailscaleIPs | index($address)))] | length == 1' \
        >/dev/null
}

# Succeed on any answer over the tailnet, also a refusal.
slurmd_port_answers() {
    local message
    # shellcheck disable=SC2016  # it is for the other shell
    message=$(timeout 5 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$NODE_ADDRESS" "$NODE_PORT" 2>&1) || [[ $message == *refused* ]]
}

# Slurm's jobs arrive this way, so a node that the head node cannot reach must not count.
require_answer() {
    wait_until 20 slurmd_port_answers || fail \
        "nothing answers on $NODE_NAME at its tailnet address, $NODE_ADDRESS port $NODE_PORT, although it is in the tailnet: a firewall on \
the machine${NODE_FIREWALL:+ (found: ${NODE_FIREWALL//+/, })}, tailscale's shields-up or the tailnet's policy blocks the head node" \
        "on $NODE_NAME allow input on tailscale0: 'ufw allow in on tailscale0', 'firewall-cmd --permanent --zone=trusted \
--add-interface=tailscale0', or a rule 'iifname tailscale0 accept' before the one that drops ('nft list ruleset'); \
'tailscale set --shields-up=false' there; and see that the tailnet's policy lets the cluster's machines reach one another on all ports"
}

tailnet_register() {
    # The list follows the control server with some delay.
    wait_until 30 node_is_at_its_address ||
        fail "the tailnet has no machine $NODE_NAME at $NODE_ADDRESS, the address that $NODE_NAME reports" \
            "see 'tailscale status' on $HOST_NAME; a name that was taken already ($NODE_NAME-1) is freed by removing the old machine there"
    require_answer
}
