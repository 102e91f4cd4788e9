#!/bin/bash
# uses: slurm/files
# A head node program, run by a timer, that removes nodes which their provider took back.
# components/steps/composition.py adds `expire_node`: the down of a node's member step without contacting the node.

# One file per silent node, as old as its silence.
SLURM_SILENT=$STATE_DIR/slurm/silent

# Succeed if neither slurmctld nor the tailnet hears from the node at the address it joined with (machines choose their
# tailnet names). A node that Slurm does not have may be joining.
node_silent() {
    local state address
    state=$(scontrol show node "$1" --json 2>/dev/null | jq -r '.nodes[0].state | join("+")') || state=''
    [[ -z $state || $state =~ DOWN|NOT_RESPONDING ]] || return 1
    address=$(cat "$STATE_DIR/members/$1/address") || return 1
    tailscale status --json | jq -e --arg address "$address" \
        '[.Peer // {} | .[] | select((.TailscaleIPs // [] | index($address)) and .Online)] == []' >/dev/null
}

silent_for() { echo $(($(date +%s) - $(stat -c %Y "$SLURM_SILENT/$1"))); }

print_failure() {
    local status=$?
    [ "$status" -eq 0 ] || printf 'tailrack-expire: %s; next: %s\n' "${REASON:-stopped}" "${REMEDY:-see above}" >&2
}

slurm_expire() {
    set -euo pipefail
    trap print_failure EXIT
    local path minutes
    LOCKED=''
    controller_answers || fail "slurmctld does not answer" "see 'journalctl -u slurmctld'"
    mkdir -p "$SLURM_SILENT"
    for path in "$SLURM_NODES"/*/forget_after; do
        [ -e "$path" ] || continue
        minutes=$(<"$path")
        NODE_NAME=$(basename "$(dirname "$path")")
        if [ "$minutes" -eq 0 ] || ! node_silent "$NODE_NAME"; then
            rm -f "$SLURM_SILENT/$NODE_NAME"
            continue
        fi
        [ -e "$SLURM_SILENT/$NODE_NAME" ] || touch "$SLURM_SILENT/$NODE_NAME"
        [ "$(silent_for "$NODE_NAME")" -ge $((minutes * 60)) ] || continue
        note "$NODE_NAME has not answered for $minutes minutes; removing it"
        take_lock
        # This requeues its jobs.
        scontrol update "nodename=$NODE_NAME" state=down reason="tailrack: does not answer" || note "Slurm has no node $NODE_NAME"
        expire_node
        rm -f "$SLURM_SILENT/$NODE_NAME"
    done
}
