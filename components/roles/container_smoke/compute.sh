#!/bin/bash
# uses: enroot_pyxis/install
# The proof that containers run here, before anybody relies on it. What it finds and does is in tailrack-containers; where
# the node is busy, its timer goes on.
#
# USERS_LINES   `name uid gid`, one a line; the first runs the job

container_smoke_compute() {
    local said status=0
    ensure_file "$CONTAINERS_DIR/smoke" 0644 root:root "user=${USERS_LINES%% *}"
    said=$(/usr/local/sbin/tailrack-containers prove 2>&1) || status=$?
    note "$said"
    systemctl daemon-reload
    systemctl enable -q --now tailrack-containers.timer
    case $status in
        0) result containers '"proven"' ;;
        3) result containers '"not proven yet: busy"' ;;
        *) fail "containers do not run here, and the node is drained: $(tail -n 1 <<<"$said")" \
            "see 'journalctl -u slurmd' and 'tailrack-containers prove' on $HOST_NAME, then run up again" ;;
    esac
}
