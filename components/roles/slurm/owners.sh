#!/bin/bash
# uses: slurm/files
# Whose a node is: of the cluster's own stack, or of a pool's.
#
# POOL_OWNER   the pool that the step is about, empty for the cluster's own stack

# The pool that a node of a name is of, `-` for the cluster's own; nothing where there is none, or it is POOL_OWNER's.
other_owner_of_node() {
    local path owner
    for path in "$SLURM_NODES/$1" "$SLURM_POOLS"/*/; do
        if [ "$path" = "$SLURM_NODES/$1" ]; then
            [ -e "$path/site" ] || continue # the folder alone may be that of a node that is on its way (role fabric)
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
    [ -z "$owner" ] || fail "the cluster has a node $1 already: $([ "$owner" = - ] && echo "one of its own stack" || echo "that of the pool $owner")" \
        "give one of the two nodes another name, or remove the other one first"
}
