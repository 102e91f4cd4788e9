#!/bin/bash
# uses: machine/keep_running machine/retire slurm/jobs slurm/others slurm_release/packages slurm_release/take_turn slurm_release/wait_for_packages
# slurmd as a dynamic node: it brings its own hardware description and takes all configuration from the controller.
#
# NODE_FEATURES, NODE_GRES   Slurm features and gres of this node (`site-x,pool-a`, `gpu:h200:8` or empty)
# NODE_REGISTERED_MB         memory that Slurm is told of, a little less than there is
# NODE_RESERVED_MB           memory of it that no job gets
# HEAD_ADDRESS               tailnet address of slurmctld
# SLURM_JOB_LIMIT_SECONDS    see jobs.sh

SLURM_PORT=6817
# Seconds for a started slurmd to be seen as usable by the controller.
REGISTER_LIMIT=90
# Seconds for the controller to place this node; without another one that comes, after which the first by name has all of them
# placed where more are on their way; after which each sees to it itself.
PLACE_LIMIT=120 PLACE_QUIET=2 PLACE_WAIT=20

# Values of what the controller knows of this node; empty where it knows none.
node_field() { scontrol show node "$HOST_NAME" --json 2>/dev/null | jq -r ".nodes[0] // empty | $1"; }
node_known() { scontrol show node "$HOST_NAME" >/dev/null 2>&1; }

# Ask the controller for this node's state, and who has set which reason for it. Fails where it knows none.
ask_state() {
    local said
    mapfile -t said < <(node_field '(.state | join("+")), (.reason_set_by_user // ""), (.reason // "")')
    NODE_STATE=${said[0]:-} REASON_BY=${said[1]:-} NODE_REASON=${said[*]:2}
    [ -n "$NODE_STATE" ]
}
drained() { [[ +$NODE_STATE+ == *+DRAIN+* ]]; }

# Features, gres and reserved memory of a dynamic node are taken when it is created, and never again. (Slurm adds the
# sockets to the gres.)
registered_otherwise() {
    local there
    there=$(node_field '(.features | sort | join(",")), (.gres | gsub("[(][^)]*[)]"; "")), .specialized_memory')
    [ -n "$there" ] && [ "$there" != "$(tr , '\n' <<<"$NODE_FEATURES" | sort | paste -sd ,)
$NODE_GRES
$NODE_RESERVED_MB" ]
}

# Why steps drain a node, which they bring back when it is as it should be. Whoever else drains it does so for a reason of
# their own, whatever that begins with: a person, or what looks after the node's health.
OUR_DRAINS='tailrack: (registers anew|leaves the cluster|runs no jobs any more|shuts down|has another munge key|containers.*)'

# Whether Slurm has drained it; which script failed, root on the node writes into that drain's reason (tailrack-nhc).
slurms_drain() {
    drained && [ -n "$NODE_REASON" ] &&
        { [ "$REASON_BY" = slurm ] || [[ $NODE_REASON =~ ^(Prolog|Epilog)" error: "(prolog|epilog)"."d/ ]]; }
}

# Whether it is drained for a reason that is neither Slurm's own nor ours.
persons_drain() { drained && ! slurms_drain && [ -n "$NODE_REASON" ] && [[ ! $NODE_REASON =~ ^$OUR_DRAINS$ ]]; }

# Whether the node's drain is one that its own look at itself has set (role health).
drain_of_health() { command -v tailrack-nhc >/dev/null && tailrack-nhc --own; }

# The controller knows the node, has talked to it, and would give it work (or already does). A person who drained it
# keeps it drained; what an earlier step of ours drained and could not finish comes back; what Slurm drained stays.
node_usable() {
    note "node state: $NODE_STATE $NODE_REASON"
    [[ $NODE_STATE =~ ^(IDLE|MIXED|ALLOCATED) ]] && [[ ! $NODE_STATE =~ NOT_RESPONDING|INVALID|DOWN|UNKNOWN ]] || return 1
    [[ $NODE_STATE == *DRAIN* ]] || return 0
    if [[ $NODE_REASON =~ ^$OUR_DRAINS$ ]]; then
        scontrol update "nodename=$HOST_NAME" state=resume
        return 1
    fi
    persons_drain || return 1
    if ! drain_of_health; then
        note "a person drained this node, and it stays so: $NODE_REASON"
    elif [ -n "${LOOKED_AGAIN:-}" ]; then
        note "this node is not well, and stays drained: $NODE_REASON"
    else
        # What it was drained for may be over, as the share that was away with the tailnet; by itself it looks in two minutes.
        LOOKED_AGAIN=yes
        timeout 60 tailrack-nhc --wait || note "its look at itself failed"
        return 1
    fi
}

# Usable, or drained by Slurm although it registers well, which waiting does not mend. Which of the two is kept: asked once
# more, a slurmd that is just starting again has no configuration to ask the controller with.
node_decided() {
    USABLE=no
    ask_state || { stay_known && ask_state; } || return 1
    if node_usable; then USABLE=yes; fi
    [ "$USABLE" = yes ] ||
        { slurms_drain && [[ ! $NODE_STATE =~ INVALID|NOT_RESPONDING|DOWN ]]; }
}

# A slurmctld that reads its files anew saves what it knows before it stops listening (src/slurmctld/controller.c): who
# registers in between is forgotten, and slurmd does not know.
stay_known() {
    if node_known || ! scontrol ping 2>/dev/null | grep 'is UP' >/dev/null; then return 0; fi
    note "the controller knows no $HOST_NAME: slurmd makes it known"
    systemctl restart --no-block slurmd
    wait_until 30 node_known || :
}

require_usable() {
    { wait_until "$REGISTER_LIMIT" node_decided && [ "$USABLE" = yes ]; } || fail \
        "the controller at $HEAD_ADDRESS does not see this node as usable ($(! ask_state || printf '%s' "$NODE_STATE $NODE_REASON"))" \
        "see 'journalctl -u slurmd' on $HOST_NAME and 'sinfo -R' on the head node$(clock_hint)"
}

# Nodes that the controller places, one a line. A leaf switch shows its line of topology.conf; only the switch above shows
# which nodes really are there.
placed_nodes() {
    local nodes switch=$'(^|\n)SwitchName=tailnet [^\n]*Nodes=([^[:space:]]+)'
    # Without a word: since 25.05 that would be the name of a topology, and not of a switch.
    nodes=$(scontrol show topology 2>/dev/null) || return 1
    if [[ $nodes =~ $switch ]]; then scontrol show hostnames "${BASH_REMATCH[2]}"; fi
}

placed() {
    local nodes
    nodes=$(placed_nodes) && has_line "$HOST_NAME" "$nodes"
}

# Nodes that the controller knows, one a line.
known_nodes() { sinfo -h -a -N -o %N | sort -u; }

# Of names, one a line, those that are not among others.
without() {
    local name
    local -A others=()
    while read -r name; do [ -z "$name" ] || others[$name]=; done <<<"$2"
    while read -r name; do [ -z "$name" ] || [ -n "${others[$name]+there}" ] || printf '%s\n' "$name"; done <<<"$1"
}

# Nodes that have come to the head node, one a line, whether or not slurmd runs there yet: all that it lists (role names) but
# itself. Fails where there is no such list.
nodes_that_came() {
    local list=$STATE_DIR/names
    [ ! -e "$STATE_DIR/names-from" ] || list=$(<"$STATE_DIR/names-from")
    timeout 20 cat "$list" 2>/dev/null |
        awk -v head="$HEAD_ADDRESS" '$1 == head { whole = 1; next } { print $2 } END { exit !whole }'
}

# Whether all that have come are among those that the controller knows. One that broke off and is taken for one on its way costs
# seconds, one that comes and is not listed yet another call.
nobody_on_the_way() {
    local came
    came=$(nodes_that_came) && [ -z "$(without "$came" "$1")" ]
}

# The controller reads topology.conf when it is told to, and places those that it knows by then: one call is for all who have
# come (docs/decisions/0015). Who is there each of them sees alike, so they need not talk: the first by name makes it.
# For a node without a place.
get_placed() {
    local begin=$SECONDS waited=$SECONDS quiet=$SECONDS before='' known unplaced enough
    while [ $((SECONDS - begin)) -lt "$PLACE_LIMIT" ]; do
        stay_known
        known=$(known_nodes) && unplaced=$(placed_nodes) && unplaced=$(without "$known" "$unplaced") || unplaced=$before
        if [ "$unplaced" != "$before" ]; then before=$unplaced quiet=$SECONDS; fi
        enough=$PLACE_QUIET
        if nobody_on_the_way "$known"; then enough=0; fi
        # The first may be one that has no place in the file.
        if [ $((SECONDS - waited)) -ge "$PLACE_WAIT" ] ||
            { [ "${unplaced%%$'\n'*}" = "$HOST_NAME" ] && [ $((SECONDS - quiet)) -ge "$enough" ]; }; then
            note "reconfiguring slurmctld, for ${unplaced//$'\n'/ }"
            scontrol reconfigure || note "slurmctld refuses its configuration"
            if wait_until 10 placed; then return; fi
            note "still without a place"
            waited=$SECONDS quiet=$SECONDS
        else
            sleep 0.5
            if placed; then return; fi
        fi
    done
    return 1
}

deleted() { SLURM_CONF=$1/slurm.conf scontrol delete "nodename=$HOST_NAME"; }

# munge refuses what was made more than five minutes before or after; its own words for that say nothing of clocks.
clock_hint() {
    if journalctl -u slurmd -n 50 -o cat --no-pager | grep -E '(Expired|Rewound) credential' >/dev/null; then
        printf '; the clocks of this node and of the head node differ by more than five minutes'
    fi
}

# Have the node created anew, with other features, gres or reserved memory; jobs on it end first.
register_anew() {
    local conf reason='' health=no gone=yes from=/run/slurm/conf
    if ask_state && persons_drain; then reason=$NODE_REASON; fi
    # One that is set here it would take for a person's, and never take back: it sets its own again by itself.
    if [ -n "$reason" ] && drain_of_health; then reason='' health=yes; fi
    note "registering anew"
    see_jobs_off "$HOST_NAME" "${reason:-tailrack: registers anew}" "$SLURM_JOB_LIMIT_SECONDS" ||
        fail "jobs on this node neither end nor can be requeued" "see 'squeue -w $HOST_NAME'"
    # slurmd must not run, or it makes itself known again; and it takes the way to the controller with it (/run/slurm).
    make_temporary conf -d
    [ -e "$from/slurm.conf" ] || from=/etc/slurm # the head node's own
    cp -L "$from"/* "$conf/"
    systemctl stop slurmd
    wait_until 60 deleted "$conf" || gone=no
    systemctl restart --no-block slurmd
    [ "$gone" = yes ] || fail "Slurm keeps the old node $HOST_NAME" "see 'scontrol show node $HOST_NAME' on the head node"
    wait_until "$REGISTER_LIMIT" node_known || return 0
    [ "$health" = no ] || tailrack-nhc || note "its look at itself failed; the next one is in two minutes"
    [ -z "$reason" ] || scontrol update "nodename=$HOST_NAME" state=drain reason="$reason"
}

# With cgroups jobs live in a scope of slurmd's own making, which knows nothing of what they need: its name is one of these
# two, by how Slurm was built (MULTIPLE_SLURMD in src/plugins/cgroup/v2/cgroup_v2.c). No unit of ours names the scope: systemd
# would keep one that has ended, and slurmd, which can only make a new one, would not start again before a boot.
give_jobs_back_at_shutdown() {
    local scope known=$CHANGED
    ensure_file /etc/systemd/system/tailrack-shutdown.service 0644 root:root "[Unit]
Description=Jobs go back to the queue when this machine shuts down
# It ends before all that its end needs: the way to the controller, the share, and the jobs themselves.
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
        ensure_file "/etc/systemd/system/$scope.d/tailrack.conf" 0644 root:root "# Written by tailrack: what is left of jobs.
[Unit]
Before=tailrack-shutdown.service
CollectMode=inactive-or-failed

[Scope]
TimeoutStopSec=5
# A job that takes more memory than it may is ended by the kernel; systemd would end all jobs of the node with it.
OOMPolicy=continue"
    done
    # For a scope that has jobs now; to ask systemd for it would have it loaded, as above. A new one reads its files.
    if [ -n "$CHANGED" ] && systemctl -q is-active slurmd; then systemctl daemon-reload; fi
    # None of it is slurmd's.
    CHANGED=$known
}

slurm_compute() {
    local conf="Feature=$NODE_FEATURES RealMemory=$NODE_REGISTERED_MB MemSpecLimit=$NODE_RESERVED_MB" known_changed=${CHANGED:-}
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
# Jobs have it from slurmd; NCCL and RDMA pin memory.
LimitMEMLOCK=infinity
ExecStart=
# The last word is what other roles add, in files of their own here.
ExecStart=/usr/sbin/slurmd --systemd -Z -N $HOST_NAME --conf-server $HEAD_ADDRESS:$SLURM_PORT --conf \"$conf\" \$TAILRACK_SLURMD_OPTIONS"
    keep_running slurmd.service
    give_jobs_back_at_shutdown
    # As it was called before version 0.1.
    retire tailrack-known.service
    rm -f /usr/local/sbin/tailrack-known
    reload_units slurmd.service tailrack-slurmd-watchdog.service tailrack-shutdown.service
    enable_units slurmd.service tailrack-slurmd-watchdog.service tailrack-shutdown.service
    # A controller that forgot this node, which could not be told: slurmd makes itself known only when it starts.
    if ! systemctl -q is-active slurmd || ! node_known; then
        systemctl restart --no-block slurmd
        wait_until "$REGISTER_LIMIT" node_known || :
        CHANGED=
    fi
    if registered_otherwise; then
        register_anew
    elif [ -n "$CHANGED" ]; then
        # Jobs go on without slurmd.
        systemctl restart --no-block slurmd
    fi
    require_usable
    if [ -e "$SLURM_INSTALLED" ]; then waits_no_longer "$HOST_NAME"; fi
    end_turn
    if ! placed; then
        get_placed || fail "the controller does not place this node in its site" \
            "see 'journalctl -u slurmctld' and /etc/slurm/topology.conf on the head node"
        require_usable
    fi
    systemctl start tailrack-shutdown
    if [ -n "$known_changed" ]; then systemctl restart tailrack-slurmd-watchdog; else systemctl start tailrack-slurmd-watchdog; fi
    result slurm_version "$(json_string "$(slurmd -V | awk '{print $2}')")"
}
