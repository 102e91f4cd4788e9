#!/bin/bash
# A node's place among those of its site that share a network: proven with one that is there already, by 1 MiB each way.
# What is kept of it lies with the node's other files (slurm/files.sh), and goes with them.
#
# NODE_NAME, NODE_SITE, NODE_FABRIC
# NODE_NETWORKS   interfaces and RDMA devices that may be its fabric, JSON

FABRIC_RECORDS=$STATE_DIR/slurm/nodes

# its tailnet address
place_in_fabric() {
    local node answer error
    if [ "$NODE_FABRIC" = tailnet ]; then
        rm -f "$FABRIC_RECORDS/$NODE_NAME/fabric" "$FABRIC_RECORDS/$NODE_NAME/fabric.json"
        return
    fi
    node=$(jq -c --arg node "$NODE_NAME" --arg site "$NODE_SITE" --arg setting "$NODE_FABRIC" --arg address "$1" \
        '. + {$node, $site, $setting, $address}' <<<"$NODE_NETWORKS")
    answer=$(/usr/local/lib/tailrack/fabric.py place "$FABRIC_RECORDS" <<<"$node") ||
        fail "the fabric of $NODE_NAME cannot be proven: $answer" \
            "see 'journalctl -u tailrack-fabric@*' there; fabric: tailnet at its site does without"
    note "fabric: $answer"
    error=$(jq -r .error <<<"$answer")
    [ -z "$error" ] || fail "$error" \
        "see 'ip address' and firewalls on $NODE_NAME; or write fabric: auto, tailnet or another interface at site $NODE_SITE"
    result fabric "$answer"
}
