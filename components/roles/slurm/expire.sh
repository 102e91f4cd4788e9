#!/bin/bash
# uses: slurm/files
# A program of the head node's own, by a timer: it forgets nodes that their provider has taken back. What `expire_node`
# does is put in by components/steps/composition.py: all that the down of a node's member step does, but for asking the node to leave.

# A file a node that does not answer, as old as its silence.
SLURM_SILENT=$STATE_DIR/slurm/silent

# Neither slurmctld nor the tailnet hears of it, at the address it joined with: names there are what machines call
# themselves. One that Slurm does not know may be on its way into the cluster.
node_silent() {
    local state address
    state=$(scontrol show node "$1" --json 2>/dev/null | jq -r '.nodes[0].state | join("+")') || state=''
    [[ -z $state || $state =~ DOWN|NOT_RESPONDING ]] || return 1
    address=$(cat "$STATE_DIR/members/$1/address") || return 1
    tailscale status --json | jq -e --arg address "$address" \
        '[.Peer // {} | .[] | select((.TailscaleIPs // [] | index($address)) and .Online)] == []' >/dev/null
}

silent_for() { echo $(($(date +%s) - $(stat -c %Y "$SLURM_SILENT/$1"))); }

say_why_not() {
    local status=$?
    [ "$status" -eq 0 ] || printf 'tailrack-expire: %s; next: %s\n' "${REASON:-stopped}" "${REMEDY:-see above}" >&2
}

slurm_expire() {
    set -euo pipefail
    trap say_why_not EXIT
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
        note "$NODE_NAME has not answered for $minutes minutes: taken as taken back"
        take_lock
        # Its jobs go back to the queue with this.
        scontrol update "nodename=$NODE_NAME" state=down reason="tailrack: does not answer" || note "Slurm knows no $NODE_NAME"
        expire_node
        rm -f "$SLURM_SILENT/$NODE_NAME"
    done
}
