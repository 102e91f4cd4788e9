#!/bin/bash
# uses: enroot_pyxis/install
# The proof that containers run here, before anybody relies on it. What it finds and does is in tailrack-containers; where
# the node is busy, its timer goes on.

prove_containers() {
    local said status=0
    said=$(/usr/local/sbin/tailrack-containers prove 2>&1) || status=$?
    note "$said"
    case $status in
        0) result containers '"proven"' ;;
        3) result containers '"not proven yet: busy"' ;;
        *) fail "containers do not run here, and the node is drained: $(tail -n 1 <<<"$said")" \
            "see 'journalctl -u slurmd' and 'tailrack-containers prove' on $HOST_NAME, then run up again" ;;
    esac
}
