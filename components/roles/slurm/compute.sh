#!/bin/bash
# uses: slurm/others
# slurmd as a dynamic node: it brings its own hardware description and takes all configuration from the controller.
#
# NODE_FEATURES, NODE_GRES   Slurm features and gres of this node (`site-x,pool-a`, `gpu:h200:8` or empty)
# HEAD_ADDRESS               tailnet address of slurmctld
# SLURM_JOB_LIMIT_SECONDS    how long a job may go on before it is requeued, when its node has to register anew

SLURM_PORT=6817
# Seconds for a started slurmd to be seen as usable by the controller.
REGISTER_LIMIT=90

node_state() { scontrol show node "$HOST_NAME" --json 2>/dev/null | jq -r '.nodes[0].state // [] | join("+")'; }

# The controller knows the node, has talked to it, and would give it work (or already does).
node_usable() {
    local state
    state=$(node_state) || return 1
    note "node state: $state"
    [[ $state =~ ^(IDLE|MIXED|ALLOCATED) ]] && [[ ! $state =~ NOT_RESPONDING|INVALID|DOWN|UNKNOWN ]]
}

# The controller reads topology.conf only when it is told to; a node that has just made itself known is not in it yet.
# A leaf switch shows its line of the file; only the switch above shows which nodes really are there.
placed_in_topology() {
    local placed
    placed=$(scontrol show topology tailnet 2>/dev/null | sed -n 's/.*SwitchName=tailnet .*Nodes=\([^ ]*\).*/\1/p')
    [ -n "$placed" ] && scontrol show hostnames "$placed" | grep -qx "$HOST_NAME"
}

reconfigure_until_placed() {
    scontrol reconfigure || return 1
    wait_until 10 placed_in_topology
}

jobs_here() { squeue -h -w "$HOST_NAME" -o %A | sort -u; }
no_jobs_here() {
    local jobs
    jobs=$(jobs_here) && [ -z "$jobs" ]
}

wait_for_jobs_here() {
    scontrol update "nodename=$HOST_NAME" state=drain reason="tailrack: registers anew"
    if ! wait_until "$SLURM_JOB_LIMIT_SECONDS" no_jobs_here; then
        note "requeueing $(jobs_here | tr '\n' ' ')after ${SLURM_JOB_LIMIT_SECONDS}s"
        jobs_here | xargs -r -n 1 scontrol requeue
        wait_until 60 no_jobs_here || fail "jobs on this node neither end nor can be requeued" "see 'squeue -w $HOST_NAME'"
    fi
}

slurm_compute() {
    local conf="Feature=$NODE_FEATURES"
    set_slurm_of_others_aside
    [ -z "$NODE_GRES" ] || conf+=" Gres=$NODE_GRES"
    CHANGED=
    ensure_file /etc/systemd/system/slurmd.service.d/tailrack.conf 0644 root:root "[Unit]
# Slurm speaks over the tailnet only, so the address and the names must be there first.
After=munge.service tailrack-tailnet.service tailrack-names.service
Wants=munge.service
Requires=tailrack-names.service

[Service]
TimeoutStartSec=infinity
Restart=on-failure
RestartSec=5
ExecStart=
ExecStart=/usr/sbin/slurmd --systemd -Z -N $HOST_NAME --conf-server $HEAD_ADDRESS:$SLURM_PORT --conf \"$conf\""
    systemctl daemon-reload
    systemctl enable -q slurmd
    if [ -n "$CHANGED" ] && scontrol ping >/dev/null 2>&1 && [ -n "$(node_state)" ]; then
        # Features and gres of a dynamic node are taken when it is created, so it is created anew; jobs on it end first.
        wait_for_jobs_here
        systemctl stop slurmd
        scontrol delete "nodename=$HOST_NAME"
    fi
    # A controller that forgot this node, which could not be told: slurmd makes itself known only when it starts.
    if [ -n "$CHANGED" ] || ! systemctl -q is-active slurmd || [ -z "$(node_state)" ]; then
        systemctl restart --no-block slurmd
    fi
    wait_until "$REGISTER_LIMIT" node_usable ||
        fail "the controller at $HEAD_ADDRESS does not see this node as usable (state: $(node_state || echo unknown))" \
            "see 'journalctl -u slurmd' on $HOST_NAME and 'sinfo -R' on the head node"
    placed_in_topology || wait_until 60 reconfigure_until_placed ||
        fail "the controller does not place this node in its site" "see topology.conf and slurmctld's log on the head node"
    result slurm_version "$(json_string "$(slurmd -V | awk '{print $2}')")"
}
