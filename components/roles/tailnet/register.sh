#!/bin/bash
# A member is known by what the head node sees of it in the tailnet, not by what it says of itself.
#
# NODE_NAME, NODE_ADDRESS
# NODE_FIREWALL   what on the node itself may keep others from it (own_firewall.sh), for words; empty where nothing was seen

# Of slurmd. It need not run yet: a port at which nothing listens is refused at once, and one behind a firewall is not.
NODE_PORT=6818

# The machine of this name has this address, in the head node's own list of the tailnet's machines.
node_is_at_its_address() {
    tailscale status --json | jq -e --arg name "$NODE_NAME" --arg address "$NODE_ADDRESS" \
        '[.Peer[]? | select((.DNSName | split(".")[0]) == $name and (.TailscaleIPs | index($address)))] | length == 1' \
        >/dev/null
}

# An answer over the tailnet, if only a refusal.
slurmd_port_answers() {
    local said
    # shellcheck disable=SC2016  # it is for the other shell
    said=$(timeout 5 bash -c 'exec 3<>"/dev/tcp/$0/$1"' "$NODE_ADDRESS" "$NODE_PORT" 2>&1) || [[ $said == *refused* ]]
}

# Slurm's jobs come by this way, so a node that nobody can reach must not count, whatever it can reach itself.
require_answer() {
    wait_until 20 slurmd_port_answers || fail \
        "nothing answers on $NODE_NAME at its tailnet address, $NODE_ADDRESS port $NODE_PORT, though it is in the tailnet: a firewall of \
the machine's own${NODE_FIREWALL:+ (there: ${NODE_FIREWALL//+/, })}, tailscale's shields-up or the tailnet's policy keeps the head node out" \
        "on $NODE_NAME let in what comes by tailscale0: 'ufw allow in on tailscale0', 'firewall-cmd --permanent --zone=trusted \
--add-interface=tailscale0', or a rule 'iifname tailscale0 accept' before the one that drops ('nft list ruleset'); \
'tailscale set --shields-up=false' there; and see that the tailnet's policy lets the cluster's machines reach one another on all ports"
}

tailnet_register() {
    # The list follows the control server's with some delay.
    wait_until 30 node_is_at_its_address ||
        fail "the tailnet knows no machine $NODE_NAME at $NODE_ADDRESS, where $NODE_NAME says it is" \
            "see 'tailscale status' on $HOST_NAME; a name that was taken already ($NODE_NAME-1) is freed by removing the old machine there"
    require_answer
}
