#!/bin/bash
# uses: container_smoke/prove
# USERS_LINES   `name uid gid`, one a line; the first runs the job

container_smoke_compute() {
    ensure_file "$CONTAINERS_DIR/smoke" 0644 root:root "user=${USERS_LINES%% *}"
    # A head node that runs jobs gets its place when the others have come, which wait for this step (services.sh).
    systemctl -q is-active slurmctld || prove_containers
    systemctl daemon-reload
    systemctl enable -q --now tailrack-containers.timer
}
