#!/bin/bash
# uses: slurm/files slurm/owners
# What a node adds: NODE_NAME, NODE_SITE, NODE_MEMORY, and lines of files, NODE_SLURM_CONF, NODE_GRES_CONF and
# NODE_JOB_SUBMIT_LUA. POOL_OWNER is the pool that it is of, empty for the cluster's own; POOL_FORGET_AFTER_MINUTES for how
# long it may be silent before it is forgotten (expire.sh), 0 for ever.
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
