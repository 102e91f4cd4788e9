#!/bin/bash
# uses: slurm/files
# A program of the head node's own, by a timer: networks that could not be proven when a node joined, because nobody
# answered, are proven once somebody does. Slurm brings what is new to every node.

fabric_again() {
    set -euo pipefail
    trap say_why_not EXIT
    LOCKED=''
    local answer
    answer=$(/usr/local/lib/tailrack/fabric.py again "$STATE_DIR/slurm/nodes")
    [ "$(jq '.proven | length' <<<"$answer")" -gt 0 ] || return 0
    note "proven: $answer"
    take_lock
    offer_slurm_files "$SLURM_BASE" topology.conf || fail "$REFUSED" "'journalctl -u slurmctld' says more"
}

say_why_not() {
    local status=$?
    [ "$status" -eq 0 ] || printf 'tailrack-fabric-again: %s; next: %s\n' "${REASON:-stopped}" "${REMEDY:-see above}" >&2
}
