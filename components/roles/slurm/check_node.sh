#!/bin/bash
# uses: slurm/releases
# Check a node against the cluster's controller. Runs after check.sh, which sets SLURM_VERSION and CGROUPS.
#
# HEAD_SLURM_VERSION   version that the head node will run
# HEAD_SLURM_OLDEST    oldest release of nodes that its srun can start jobs on
# HEAD_CGROUPS         true when the cluster's Slurm confines jobs with cgroups

slurm_check_node() {
    local release controller
    release=$(release_of "$SLURM_VERSION")
    controller=$(release_of "$HEAD_SLURM_VERSION")
    if older "$controller" "$release"; then
        fail "Slurm $release is newer than the controller's $controller; the controller must be the newest" \
            "use an image with Slurm $controller or older for $HOST_NAME, or $(one_release_remedy "$(upstream_of "$SLURM_VERSION")")"
    fi
    if older "$release" "$SLURM_NEEDED"; then
        fail "Slurm $release is too old: dynamic nodes need $SLURM_NEEDED or newer" \
            "use a newer image for $HOST_NAME, or $(one_release_remedy "$(upstream_of "$HEAD_SLURM_VERSION")")"
    fi
    if [ "$HEAD_SLURM_OLDEST" = "$controller" ] && older "$release" "$controller"; then
        fail "Slurm $release is older than the controller's $controller, whose srun reaches only nodes of its own release" \
            "use a newer image for $HOST_NAME, or $(one_release_remedy "$(upstream_of "$HEAD_SLURM_VERSION")")"
    fi
    if older "$release" "$HEAD_SLURM_OLDEST"; then
        fail "Slurm $release is too old for the controller's $controller, which accepts $HEAD_SLURM_OLDEST and newer" \
            "use a newer image for $HOST_NAME, or $(one_release_remedy "$(upstream_of "$HEAD_SLURM_VERSION")")"
    fi
    if [ "$HEAD_CGROUPS" = true ] && [ "$CGROUPS" = false ]; then
        fail "the cluster confines jobs with cgroups, but systemd has no memory controller on this machine" \
            "boot $HOST_NAME with cgroup v2, or set tailrack:slurm.cgroups to false for the whole cluster"
    fi
}
