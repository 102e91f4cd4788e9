#!/bin/bash
# uses: slurm/files
# A program that a timer runs on the head node. It retries proofs that failed because no node answered when a node
# joined; Slurm distributes the result to all nodes.

fabric_again() {
    set -euo pipefail
    trap print_failure EXIT
    LOCKED=''
    local answer
    answer=$(/usr/local/lib/tailrack/fabric.py again "$STATE_DIR/slurm/nodes")
    [ "$(jq '.proven | length' <<<"$answer")" -gt 0 ] || return 0
    note "proven: $answer"
    take_lock
    offer_slurm_files "$SLURM_BASE" topology.conf || fail "$REFUSED" "see 'journalctl -u slurmctld'"
}

print_failure() {
    local status=$?
    [ "$status" -eq 0 ] || printf 'tailrack-fabric-again: %s; next: %s\n' "${REASON:-stopped}" "${REMEDY:-see above}" >&2
}
