#!/bin/bash
# Find the nodes of its site with which a node shares a network, by a transfer of 1 MiB each way. The records are in the
# node's folder (slurm/paths.py) and go with it.
#
# NODE_NAME, NODE_SITE, NODE_FABRIC
# NODE_NETWORKS   interfaces and RDMA devices that may be its fabric, JSON

FABRIC_RECORDS=$STATE_DIR/slurm/nodes

# Prove the fabric of the node with tailnet address $1.
prove_fabric() {
    local node answer error
    if [ "$NODE_FABRIC" = tailnet ]; then
        rm -f "$FABRIC_RECORDS/$NODE_NAME/fabric" "$FABRIC_RECORDS/$NODE_NAME/fabric.json"
        return
    fi
    node=$(jq -c --arg node "$NODE_NAME" --arg site "$NODE_SITE" --arg setting "$NODE_FABRIC" --arg address "$1" \
        '. + {$node, $site, $setting, $address}' <<<"$NODE_NETWORKS")
    answer=$(/usr/local/lib/tailrack/fabric.py place "$FABRIC_RECORDS" <<<"$node") ||
        fail "the fabric of $NODE_NAME cannot be proven: $answer" \
            "see 'journalctl -u tailrack-fabric@*' there; or set fabric: tailnet at its site to use no fabric"
    note "fabric: $answer"
    error=$(jq -r .error <<<"$answer")
    [ -z "$error" ] || fail "$error" \
        "see 'ip address' and firewalls on $NODE_NAME; or set fabric: auto, tailnet or another interface at site $NODE_SITE"
    result fabric "$answer"
}
