#!/bin/bash
# uses: machine/keep_running machine/retire slurm/jobs slurm/foreign_files slurm_release/packages slurm_release/take_turn slurm_release/wait_for_packages
# Run slurmd as a dynamic node: it sends its own hardware description and gets its configuration from the controller.
#
# NODE_FEATURES, NODE_GRES   Slurm features and gres of this node (`site-x,pool-a`, `gpu:h200:8` or empty)
# NODE_REGISTERED_MB         memory that the node registers, a little less than it has
# NODE_RESERVED_MB           part of it that jobs cannot use
# HEAD_ADDRESS               tailnet address of slurmctld
# SLURM_JOB_LIMIT_SECONDS    see jobs.sh

SLURM_PORT=6817
# Seconds for the controller to see a started slurmd as usable.
REGISTER_LIMIT=90
# Seconds for the controller to place this node; without a new arrival, before the first node by name reconfigures while
# more nodes are joining; before any node reconfigures itself.
PLACE_LIMIT=120 PLACE_QUIET=2 PLACE_WAIT=20

# Print a jq value of this node in the controller; nothing if the controller does not have it.
node_field() { scontrol show node "$HOST_NAME" --json 2>/dev/null | jq -r ".nodes[0] // empty | $1"; }
node_registered() { scontrol show node "$HOST_NAME" >/dev/null 2>&1; }

# Read this node's state, its reason and the reason's author. Fail if the controller does not have the node.
read_node_state() {
    local lines
    mapfile -t lines < <(node_field '(.state | join("+")), (.reason_set_by_user // ""), (.reason // "")')
    NODE_STATE=${lines[0]:-} REASON_BY=${lines[1]:-} NODE_REASON=${lines[*]:2}
    [ -n "$NODE_STATE" ]
}
drained() { [[ +$NODE_STATE+ == *+DRAIN+* ]]; }

# Succeed if the registered features, gres or reserved memory differ from the config: a dynamic node sets them only when
# it is created. (Slurm adds sockets to the gres.)
registration_differs() {
    local registered
    registered=$(node_field '(.features | sort | join(",")), (.gres | gsub("[(][^)]*[)]"; "")), .specialized_memory')
    [ -n "$registered" ] && [ "$registered" != "$(tr , '\n' <<<"$NODE_FEATURES" | sort | paste -sd ,)
$NODE_GRES
$NODE_RESERVED_MB" ]
}

# Reasons with which steps drain a node; they resume it later. Any other reason belongs to a person or to the health
# check, even if it begins with "tailrack:".
OUR_DRAINS='tailrack: (registers anew|leaves the cluster|runs no jobs any more|shuts down|has another munge key|containers.*)'

# Succeed if Slurm drained the node. tailrack-nhc, which runs as root, adds the failed script to that reason.
drained_by_slurm() {
    drained && [ -n "$NODE_REASON" ] &&
        { [ "$REASON_BY" = slurm ] || [[ $NODE_REASON =~ ^(Prolog|Epilog)" error: "(prolog|epilog)"."d/ ]]; }
}

# Succeed if the reason is neither Slurm's nor one of OUR_DRAINS.
drained_by_person() { drained && ! drained_by_slurm && [ -n "$NODE_REASON" ] && [[ ! $NODE_REASON =~ ^$OUR_DRAINS$ ]]; }

# Succeed if the node's health check (role health) drained it.
drained_by_health() { command -v tailrack-nhc >/dev/null && tailrack-nhc --own; }

# Succeed if the controller talks to the node and would give it work. Resume a drain that an unfinished step left; keep
# drains of people and of Slurm.
node_usable() {
    note "node state: $NODE_STATE $NODE_REASON"
    [[ $NODE_STATE =~ ^(IDLE|MIXED|ALLOCATED) ]] && [[ ! $NODE_STATE =~ NOT_RESPONDING|INVALID|DOWN|UNKNOWN ]] || return 1
    [[ $NODE_STATE == *DRAIN* ]] || return 0
    if [[ $NODE_REASON =~ ^$OUR_DRAINS$ ]]; then
        scontrol update "nodename=$HOST_NAME" state=resume
        return 1
    fi
    drained_by_person || return 1
    if ! drained_by_health; then
        note "a person drained this node; it stays drained: $NODE_REASON"
    elif [ -n "${CHECKED_AGAIN:-}" ]; then
        note "the health check drained this node; it stays drained: $NODE_REASON"
    else
        # The error may have cleared, such as a share that was unreachable with the tailnet. The timer checks every two
        # minutes only.
        CHECKED_AGAIN=yes
        timeout 60 tailrack-nhc --wait || note "the health check (tailrack-nhc) failed"
        return 1
    fi
}

# Succeed once the node is usable, or registered and drained by Slurm, which waiting does not change. USABLE keeps the
# result, because a slurmd that restarts has no configuration to ask the controller with.
node_settled() {
    USABLE=no
    read_node_state || { ensure_registered && read_node_state; } || return 1
    if node_usable; then USABLE=yes; fi
    [ "$USABLE" = yes ] ||
        { drained_by_slurm && [[ ! $NODE_STATE =~ INVALID|NOT_RESPONDING|DOWN ]]; }
}

# A reconfiguring slurmctld saves its state before it stops listening (src/slurmctld/controller.c). It forgets nodes
# that register in between, and their slurmd does not notice.
ensure_registered() {
    if node_registered || ! scontrol ping 2>/dev/null | grep 'is UP' >/dev/null; then return 0; fi
    note "the controller has no node $HOST_NAME: restarting slurmd, which registers it"
    systemctl restart --no-block slurmd
    wait_until 30 node_registered || :
}

require_usable() {
    { wait_until "$REGISTER_LIMIT" node_settled && [ "$USABLE" = yes ]; } || fail \
        "the controller at $HEAD_ADDRESS does not see this node as usable ($(! read_node_state || printf '%s' "$NODE_STATE $NODE_REASON"))" \
        "see 'journalctl -u slurmd' on $HOST_NAME and 'sinfo -R' on the head node$(clock_hint)"
}

# Print the nodes that the controller has placed, one per line. The leaf switches only repeat topology.conf; the switch
# above them lists existing nodes.
placed_nodes() {
    local nodes switch=$'(^|\n)SwitchName=tailnet [^\n]*Nodes=([^[:space:]]+)'
    # No argument: since 25.05 it would name a topology and not a switch.
    nodes=$(scontrol show topology 2>/dev/null) || return 1
    if [[ $nodes =~ $switch ]]; then scontrol show hostnames "${BASH_REMATCH[2]}"; fi
}

placed() {
    local nodes
    nodes=$(placed_nodes) && has_line "$HOST_NAME" "$nodes"
}

# Print the nodes that the controller has, one per line.
registered_nodes() { sinfo -h -a -N -o %N | sort -u; }

# Print the names in $1 that are not in $2, one per line.
names_not_in() {
    local name
    local -A excluded=()
    while read -r name; do [ -z "$name" ] || excluded[$name]=; done <<<"$2"
    while read -r name; do [ -z "$name" ] || [ -n "${excluded[$name]+set}" ] || printf '%s\n' "$name"; done <<<"$1"
}

# Print the nodes that the head node lists (role names) except itself, one per line, even before their slurmd runs. Fail
# without such a list.
joined_nodes() {
    local list=$STATE_DIR/names
    [ ! -e "$STATE_DIR/names-from" ] || list=$(<"$STATE_DIR/names-from")
    timeout 20 cat "$list" 2>/dev/null |
        awk -v head="$HEAD_ADDRESS" '$1 == head { complete = 1; next } { print $2 } END { exit !complete }'
}

# Succeed if all joined nodes are among those registered, $1. A node whose join broke off costs some seconds, and one
# that is not listed yet costs one more reconfiguration.
all_registered() {
    local joined
    joined=$(joined_nodes) && [ -z "$(names_not_in "$joined" "$1")" ]
}

# Wait until this node has a place. The controller reads topology.conf only when it reconfigures, and then places all
# registered nodes, so one call serves all that are joining (docs/decisions/0015). All of them see the same list, so
# without talking to each other the first by name makes the call.
wait_for_place() {
    local begin=$SECONDS waited=$SECONDS quiet=$SECONDS previous='' registered unplaced needed_quiet
    while [ $((SECONDS - begin)) -lt "$PLACE_LIMIT" ]; do
        ensure_registered
        registered=$(registered_nodes) && unplaced=$(placed_nodes) && unplaced=$(names_not_in "$registered" "$unplaced") || unplaced=$previous
        if [ "$unplaced" != "$previous" ]; then previous=$unplaced quiet=$SECONDS; fi
        needed_quiet=$PLACE_QUIET
        if all_registered "$registered"; then needed_quiet=0; fi
        # The first node may have no place in the file.
        if [ $((SECONDS - waited)) -ge "$PLACE_WAIT" ] ||
            { [ "${unplaced%%$'\n'*}" = "$HOST_NAME" ] && [ $((SECONDS - quiet)) -ge "$needed_quiet" ]; }; then
            note "reconfiguring slurmctld to place ${unplaced//$'\n'/ }"
            scontrol reconfigure || note "slurmctld rejects its configuration"
            if wait_until 10 placed; then return; fi
            note "slurmctld has not placed this node yet"
            waited=$SECONDS quiet=$SECONDS
        else
            sleep 0.5
            if placed; then return; fi
        fi
    done
    return 1
}

delete_node() { SLURM_CONF=$1/slurm.conf scontrol delete "nodename=$HOST_NAME"; }

# munge rejects credentials with a clock difference of more than five minutes, and its errors do not mention clocks.
clock_hint() {
    if journalctl -u slurmd -n 50 -o cat --no-pager | grep -E '(Expired|Rewound) credential' >/dev/null; then
        printf '; the clocks of this node and the head node differ by more than five minutes'
    fi
}

# Delete the node and register it again with other features, gres or reserved memory, after its jobs end.
recreate_node() {
    local conf reason='' health=no deleted=yes from=/run/slurm/conf
    if read_node_state && drained_by_person; then reason=$NODE_REASON; fi
    # Do not set a health drain here: the health check would take it for a person's and never end it. It sets its own
    # again.
    if [ -n "$reason" ] && drained_by_health; then reason='' health=yes; fi
    note "registering again with other features, gres or reserved memory"
    clear_jobs "$HOST_NAME" "${reason:-tailrack: registers anew}" "$SLURM_JOB_LIMIT_SECONDS" ||
        fail "jobs on this node do not end and cannot be requeued" "see 'squeue -w $HOST_NAME'"
    # slurmd would register the node again, so stop it. Copy its configuration first: it is deleted when slurmd stops
    # (/run/slurm).
    make_temporary conf -d
    [ -e "$from/slurm.conf" ] || from=/etc/slurm # the head node's own
    cp -L "$from"/* "$conf/"
    systemctl stop slurmd
    wait_until 60 delete_node "$conf" || deleted=no
    systemctl restart --no-block slurmd
    [ "$deleted" = yes ] || fail "slurmctld does not delete the old node $HOST_NAME" "see 'scontrol show node $HOST_NAME' on the head node"
    wait_until "$REGISTER_LIMIT" node_registered || return 0
    [ "$health" = no ] || tailrack-nhc || note "the health check (tailrack-nhc) failed; it runs again in two minutes"
    [ -z "$reason" ] || scontrol update "nodename=$HOST_NAME" state=drain reason="$reason"
}

# With cgroups, jobs run in a scope that slurmd creates without their dependencies; its name is one of these two, by how
# Slurm was built (MULTIPLE_SLURMD in src/plugins/cgroup/v2/cgroup_v2.c). No unit may refer to the scope: systemd would
# keep an ended one loaded, and slurmd, which can only create it, would not start again before a reboot.
requeue_jobs_at_shutdown() {
    local scope changed_before=$CHANGED
    ensure_file /etc/systemd/system/tailrack-shutdown.service 0644 root:root "[Unit]
Description=Requeue jobs when this machine shuts down
# Stops before the connection to the controller, the share and the jobs, which it needs.
After=slurmd.service slurmctld.service munge.service tailscaled.service tailrack-tailnet.service tailrack-names.service
After=remote-fs.target
Wants=remote-fs.target
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStop=/usr/local/sbin/tailrack-shutdown
TimeoutStopSec=25

[Install]
WantedBy=multi-user.target"
    CHANGED=
    for scope in slurmstepd.scope "${HOST_NAME}_slurmstepd.scope"; do
        ensure_file "/etc/systemd/system/$scope.d/tailrack.conf" 0644 root:root "# Written by tailrack: how the rest of jobs ends.
[Unit]
Before=tailrack-shutdown.service
CollectMode=inactive-or-failed

[Scope]
TimeoutStopSec=5
# The kernel ends a job that exceeds its memory; systemd would end all jobs of the node too.
OOMPolicy=continue"
    done
    # An active scope must read its files again. Naming it in a query would load it, as above.
    if [ -n "$CHANGED" ] && systemctl -q is-active slurmd; then systemctl daemon-reload; fi
    # None of these files changes slurmd.
    CHANGED=$changed_before
}

slurm_compute() {
    local conf="Feature=$NODE_FEATURES RealMemory=$NODE_REGISTERED_MB MemSpecLimit=$NODE_RESERVED_MB" changed_before=${CHANGED:-}
    set_foreign_slurm_aside
    [ -z "$NODE_GRES" ] || conf+=" Gres=$NODE_GRES"
    CHANGED=
    ensure_file /etc/systemd/system/slurmd.service.d/tailrack.conf 0644 root:root "[Unit]
# Slurm uses only the tailnet, so its address and names must exist first.
After=munge.service tailrack-tailnet.service tailrack-names.service
Wants=munge.service
Requires=tailrack-names.service

[Service]
TimeoutStartSec=infinity
# Jobs inherit it from slurmd; NCCL and RDMA pin memory.
LimitMEMLOCK=infinity
ExecStart=
# Other roles set the last argument in their own files in this folder.
ExecStart=/usr/sbin/slurmd --systemd -Z -N $HOST_NAME --conf-server $HEAD_ADDRESS:$SLURM_PORT --conf \"$conf\" \$TAILRACK_SLURMD_OPTIONS"
    keep_running slurmd.service
    requeue_jobs_at_shutdown
    # Its name before version 0.1.
    retire tailrack-known.service
    rm -f /usr/local/sbin/tailrack-known
    reload_units slurmd.service tailrack-slurmd-watchdog.service tailrack-shutdown.service
    enable_units slurmd.service tailrack-slurmd-watchdog.service tailrack-shutdown.service
    # slurmd registers only when it starts, so restart it if the controller has forgotten this node.
    if ! systemctl -q is-active slurmd || ! node_registered; then
        systemctl restart --no-block slurmd
        wait_until "$REGISTER_LIMIT" node_registered || :
        CHANGED=
    fi
    if registration_differs; then
        recreate_node
    elif [ -n "$CHANGED" ]; then
        # Jobs continue without slurmd.
        systemctl restart --no-block slurmd
    fi
    require_usable
    if [ -e "$SLURM_INSTALLED" ]; then unreserve_node "$HOST_NAME"; fi
    end_turn
    if ! placed; then
        wait_for_place || fail "the controller does not place this node in its site's switch" \
            "see 'journalctl -u slurmctld' and /etc/slurm/topology.conf on the head node"
        require_usable
    fi
    systemctl start tailrack-shutdown
    if [ -n "$changed_before" ]; then systemctl restart tailrack-slurmd-watchdog; else systemctl start tailrack-slurmd-watchdog; fi
    result slurm_version "$(json_string "$(slurmd -V | awk '{print $2}')")"
}
