#!/bin/bash
# uses: slurm/releases
# Check that the controller's release supports dynamic nodes. Runs after check.sh, which sets SLURM_VERSION.

slurm_check_head() {
    local release
    release=$(release_of "$SLURM_VERSION")
    if older "$release" "$SLURM_NEEDED"; then
        fail "Slurm $release is too old: dynamic nodes need $SLURM_NEEDED or newer" \
            "use a newer image for $HOST_NAME (Debian 13, Ubuntu 24.04), or $(one_release_remedy "$SLURM_ADVISED")"
    fi
}
