#!/bin/bash
# uses: slurm/files slurm/owners
# Write a node's part of slurmctld's files.
#
# NODE_NAME, NODE_SITE, NODE_MEMORY                     the node, its site, and memory per CPU for each of its NodeSets
# NODE_SLURM_CONF, NODE_GRES_CONF, NODE_JOB_SUBMIT_LUA   its lines of these files
# POOL_OWNER                                            its pool, empty for the cluster's stack
# POOL_FORGET_AFTER_MINUTES                             minutes of silence before expire.sh removes it; 0 for never
write_slurm_node() {
    local directory=$SLURM_NODES/$NODE_NAME
    refuse_node_of_another "$NODE_NAME"
    ensure_files \
        "$directory/owner" 0644 root:root "$POOL_OWNER" \
        "$directory/forget_after" 0644 root:root "$POOL_FORGET_AFTER_MINUTES" \
        "$directory/slurm.conf" 0644 root:root "$NODE_SLURM_CONF" \
        "$directory/gres" 0644 root:root "$NODE_GRES_CONF" \
        "$directory/job_submit.lua" 0644 root:root "$NODE_JOB_SUBMIT_LUA" \
        "$directory/memory" 0644 root:root "$NODE_MEMORY" \
        "$directory/site" 0644 root:root "$NODE_SITE"
    rm -f "$directory/gres.conf"
}
