#!/bin/bash
# uses: slurm/releases
# A controller that can have nodes that come and go; after check.sh, which has found SLURM_VERSION.

slurm_check_head() {
    local release
    release=$(release_of "$SLURM_VERSION")
    if older "$release" "$SLURM_NEEDED"; then
        fail "Slurm $release here is too old: nodes that come and go need $SLURM_NEEDED or newer" \
            "take a newer image for $HOST_NAME (Debian 13, Ubuntu 24.04), or $(one_release "$SLURM_ADVISED")"
    fi
}
