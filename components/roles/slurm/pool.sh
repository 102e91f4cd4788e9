#!/bin/bash
# uses: slurm/files slurm/owners
# Register a pool of another stack, with its partitions and node names, before any of its machines is changed.
#
# POOL_OWNER        the pool's stack
# POOL_NODES        names of its nodes
# POOL_KINDS        GPU kinds that its config names; their partitions may exist already
# POOL_SLURM_CONF   lines of slurm.conf: NodeSets and partitions of its sites
# HEAD_NAME         the head node's name

# Print `partition NodeSet` of all partitions except this pool's: the cluster's, other pools' and their nodes'.
other_partitions() {
    local path owner
    {
        cat "$SLURM_BASE/slurm.conf"
        for path in "$SLURM_POOLS"/*/; do
            [ "$path" = "$SLURM_POOLS/$POOL_OWNER/" ] || cat "$path/slurm.conf" 2>/dev/null || :
        done
        for path in "$SLURM_NODES"/*/; do
            owner=$(cat "$path/owner" 2>/dev/null || :)
            [ "$owner" = "$POOL_OWNER" ] || cat "$path/slurm.conf" 2>/dev/null || :
        done
    } | sed -n 's/^PartitionName=\([^ ]*\) Nodes=\([^ ]*\).*/\1 \2/p' | sort -u
}

refuse_taken_names() {
    local other_names name
    [ -d "$SLURM_BASE" ] || fail "there is no cluster on $HOST_NAME yet" "run up of the cluster's stack first"
    other_names=$(other_partitions)
    while read -r name; do
        ! grep -q "^$name " <<<"$other_names" || fail "the cluster already has a partition $name" \
            "rename the pool's site in tailrack:sites"
    done < <(sed -n 's/^PartitionName=\([^ ]*\) .*/\1/p' <<<"$POOL_SLURM_CONF")
    # Partitions of GPU kinds are shared: they contain nodes of both stacks.
    while read -r name; do
        [ -n "$name" ] || continue
        ! grep "^$name " <<<"$other_names" | grep -vxF "$name gpu-$name" >/dev/null || fail \
            "the cluster already has a partition $name, and it is not one of a GPU kind" \
            "rename the pool's GPU kind in tailrack:sites"
    done <<<"$POOL_KINDS"
    while read -r name; do
        [ "$name" != "$HEAD_NAME" ] || fail "the cluster's head node has the same name, $name" "rename the pool's node"
        ! grep -q "^$name " <<<"$other_names" || fail "the cluster has a partition $name, and one of the pool's nodes has the same name" \
            "rename the pool's node"
        refuse_node_of_another "$name"
    done <<<"$POOL_NODES"
}

slurm_pool() {
    local directory=$SLURM_POOLS/$POOL_OWNER
    refuse_taken_names
    ensure_file "$directory/nodes" 0644 root:root "$POOL_NODES"
    ensure_file "$directory/slurm.conf" 0644 root:root "$POOL_SLURM_CONF"
    offer_slurm_files "$SLURM_BASE" slurm.conf && return
    rm -rf "$directory"
    fail "$REFUSED" "see its errors above and 'journalctl -u slurmctld' on $HOST_NAME"
}

slurm_pool_forget() {
    rm -rf "${SLURM_POOLS:?}/$POOL_OWNER"
    [ ! -d "$SLURM_BASE" ] || offer_slurm_files "$SLURM_BASE" slurm.conf ||
        fail "$REFUSED" "see 'journalctl -u slurmctld' on $HOST_NAME"
}
