#!/bin/bash
# uses: container_smoke/prove slurm/topology
# The same for a head node that runs jobs.
#
# HEAD_COMPUTES   whether it does

container_smoke_services() {
    [ "$HEAD_COMPUTES" = true ] || return 0
    wait_until 300 placed_node "$HOST_NAME" || note "slurmctld has no place for this node yet"
    prove_containers
}
