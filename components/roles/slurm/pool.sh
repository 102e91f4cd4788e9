#!/bin/bash
# uses: slurm/files slurm/owners
# A pool of another stack: the partitions of its sites, and the names that it takes. Before any of its machines is touched.
#
# POOL_OWNER        the pool's stack
# POOL_NODES        names of its nodes
# POOL_KINDS        GPU kinds that its config names: their partitions may be there already
# POOL_SLURM_CONF   lines of slurm.conf: NodeSets and partitions of its sites
# HEAD_NAME         the head node's name

# `partition NodeSet` of all that are there without this pool: the cluster's own, other pools', and of nodes not its own.
partitions_of_others() {
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

refuse_names_of_others() {
    local others name
    [ -d "$SLURM_BASE" ] || fail "there is no cluster on $HOST_NAME yet" "bring the cluster's own stack up first"
    others=$(partitions_of_others)
    while read -r name; do
        ! grep -q "^$name " <<<"$others" || fail "the cluster has a partition $name already" \
            "give the pool's site another name, in tailrack:sites"
    done < <(sed -n 's/^PartitionName=\([^ ]*\) .*/\1/p' <<<"$POOL_SLURM_CONF")
    # Of GPU kinds it is the same partition, with nodes of both.
    while read -r name; do
        [ -n "$name" ] || continue
        ! grep "^$name " <<<"$others" | grep -vxF "$name gpu-$name" >/dev/null || fail \
            "the cluster has a partition $name already, and it is not that of a GPU kind" \
            "give the pool's GPUs another name, in tailrack:sites"
    done <<<"$POOL_KINDS"
    while read -r name; do
        [ "$name" != "$HEAD_NAME" ] || fail "the cluster's head node is called $name too" "give the pool's node another name"
        ! grep -q "^$name " <<<"$others" || fail "the cluster has a partition $name, the name of one of the pool's nodes" \
            "give the pool's node another name"
        refuse_node_of_another "$name"
    done <<<"$POOL_NODES"
}

slurm_pool() {
    local directory=$SLURM_POOLS/$POOL_OWNER
    refuse_names_of_others
    ensure_file "$directory/nodes" 0644 root:root "$POOL_NODES"
    ensure_file "$directory/slurm.conf" 0644 root:root "$POOL_SLURM_CONF"
    offer_slurm_files "$SLURM_BASE" slurm.conf && return
    rm -rf "$directory"
    fail "$REFUSED" "see what it says above; 'journalctl -u slurmctld' on $HOST_NAME says more"
}

slurm_pool_forget() {
    rm -rf "${SLURM_POOLS:?}/$POOL_OWNER"
    [ ! -d "$SLURM_BASE" ] || offer_slurm_files "$SLURM_BASE" slurm.conf ||
        fail "$REFUSED" "'journalctl -u slurmctld' on $HOST_NAME says more"
}
