#!/bin/bash
# uses: slurm/files
# Find out which stack a node belongs to: the cluster's stack or a pool's.
#
# POOL_OWNER   the pool of this step, empty for the cluster's stack

# Print the pool of the node with a name, or `-` for the cluster's stack; nothing if no node has the name or POOL_OWNER has it.
other_owner_of_node() {
    local path owner
    for path in "$SLURM_NODES/$1" "$SLURM_POOLS"/*/; do
        if [ "$path" = "$SLURM_NODES/$1" ]; then
            [ -e "$path/site" ] || continue # a node that is joining has only the folder (role fabric)
            owner=$(cat "$path/owner" 2>/dev/null || :)
        else
            grep -qsxF "$1" "$path/nodes" || continue
            owner=${path%/} owner=${owner##*/}
        fi
        [ "$owner" != "$POOL_OWNER" ] || continue
        printf '%s' "${owner:--}"
        return
    done
}

refuse_node_of_another() {
    local owner
    owner=$(other_owner_of_node "$1")
    [ -z "$owner" ] || fail "the cluster already has a node $1, in $([ "$owner" = - ] && echo "its own stack" || echo "the pool $owner")" \
        "rename one of the two nodes, or remove the other one first"
}
