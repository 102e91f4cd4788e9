#!/bin/bash
# uses: slurm/releases
# What the cluster's controller demands of a node; after check.sh, which has found SLURM_VERSION and CGROUPS.
#
# HEAD_SLURM_VERSION   version the head node will run
# HEAD_SLURM_OLDEST    oldest release of nodes that its jobs reach
# HEAD_CGROUPS         true when the cluster's Slurm confines jobs by cgroups

slurm_check_node() {
    local release controller
    release=$(release_of "$SLURM_VERSION")
    controller=$(release_of "$HEAD_SLURM_VERSION")
    if older "$controller" "$release"; then
        fail "Slurm $release here is newer than the controller's $controller; a controller must be the newest" \
            "take an image with Slurm $controller or older for $HOST_NAME, or $(one_release "$(upstream_of "$SLURM_VERSION")")"
    fi
    if older "$release" "$SLURM_NEEDED"; then
        fail "Slurm $release here is too old: nodes that come and go need $SLURM_NEEDED or newer" \
            "take a newer image for $HOST_NAME, or $(one_release "$(upstream_of "$HEAD_SLURM_VERSION")")"
    fi
    if [ "$HEAD_SLURM_OLDEST" = "$controller" ] && older "$release" "$controller"; then
        fail "Slurm $release here is older than the controller's $controller, whose srun reaches nodes of its own release alone" \
            "take a newer image for $HOST_NAME, or $(one_release "$(upstream_of "$HEAD_SLURM_VERSION")")"
    fi
    if older "$release" "$HEAD_SLURM_OLDEST"; then
        fail "Slurm $release here is too old for the controller's $controller, which accepts $HEAD_SLURM_OLDEST and newer" \
            "take a newer image for $HOST_NAME, or $(one_release "$(upstream_of "$HEAD_SLURM_VERSION")")"
    fi
    if [ "$HEAD_CGROUPS" = true ] && [ "$CGROUPS" = false ]; then
        fail "the cluster confines jobs by cgroups, and this machine gives systemd no memory controller" \
            "boot $HOST_NAME with cgroup v2, or set tailrack:slurm.cgroups to false for the whole cluster"
    fi
}
