#!/bin/bash
# uses: enroot_pyxis/install
# Prove that containers run here (tailrack-containers). If the node is busy, a timer tries again.
#
# USERS_LINES   `name uid gid`, one a line; the first user runs the job

container_smoke_compute() {
    local message status=0
    ensure_file "$CONTAINERS_DIR/smoke" 0644 root:root "user=${USERS_LINES%% *}"
    message=$(/usr/local/sbin/tailrack-containers prove 2>&1) || status=$?
    note "$message"
    systemctl daemon-reload
    systemctl enable -q --now tailrack-containers.timer
    case $status in
        0) result containers '"proven"' ;;
        3) result containers '"not proven yet: busy"' ;;
        *) fail "containers do not run here, and the node is drained: $(tail -n 1 <<<"$message")" \
            "see 'journalctl -u slurmd' and run 'tailrack-containers prove' on $HOST_NAME, then run up again" ;;
    esac
}
