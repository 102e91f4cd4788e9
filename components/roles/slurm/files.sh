#!/bin/bash
# slurmctld's files: the cluster's own, which the head step brings, and what each node and each pool adds to them, in files
# of its own. One that joins or leaves changes nothing of another's. slurmctld serves the result to all nodes
# (configless); it is reconfigured and not restarted.

SLURM_DIR=/etc/slurm
# The cluster's own files, as slurmctld last took them.
SLURM_BASE=$STATE_DIR/slurm/base
# What nodes add: <node>/<file> has lines for the file, <node>/site the switch it hangs at, <node>/memory the memory that
# its jobs get a CPU, once for each NodeSet that it is in, <node>/owner the pool that it is of (empty for the cluster's own).
SLURM_NODES=$STATE_DIR/slurm/nodes
# What pools add: <pool>/slurm.conf has the partitions of its sites, <pool>/nodes the names of its nodes.
SLURM_POOLS=$STATE_DIR/slurm/pools
# All files as slurmctld last took them. Where it refuses others, these come back, so that the machine is as the
# stack's state says and a step that was cut off is not taken for done.
SLURM_TAKEN=$STATE_DIR/slurm/taken
# There while something may have changed: tailrack-reconfigure.path starts reconfigure.sh by it.
SLURM_ASKED=$STATE_DIR/slurm/asked
# There where another role has changed a file that slurmctld serves, until slurmctld has taken it.
SLURM_SERVED=$STATE_DIR/slurm/served
# A file a node that is on its way into the cluster, as old as the step that said so.
SLURM_EXPECTED=$STATE_DIR/slurm/expected
# Seconds for slurmctld to take new files: it starts a new process, which reads all of its state.
RECONFIGURE_LIMIT=120

# Members write, and say so here; one program has slurmctld take what all of them have written (reconfigure.sh).
ask_for_reconfigure() { : >"$SLURM_ASKED"; }

# names of nodes that are on their way, one a line
expect_nodes() {
    local node
    mkdir -p "$SLURM_EXPECTED"
    while read -r node; do [ -z "$node" ] || touch "$SLURM_EXPECTED/$node"; done <<<"$1"
}

# What slurmctld gets is one process's doing at a time. A lock of its own: the host's is held for minutes where a node leaves.
lock_slurm_files() {
    install -d -m 0700 "$PRIVATE_DIR"
    exec 8>"$PRIVATE_DIR/slurm.lock"
    flock -w "$LOCK_WAIT" 8 || fail "another process has held $PRIVATE_DIR/slurm.lock for ${LOCK_WAIT}s" \
        "see 'fuser -v $PRIVATE_DIR/slurm.lock' on $HOST_NAME"
}
unlock_slurm_files() { exec 8>&-; }

controller_answers() { scontrol ping 2>/dev/null | grep -q 'is UP'; }

# Lines that nodes and pools add to a file and that its own text does not have, each once.
added_lines() {
    local base=$1 name=$2
    cat "$SLURM_POOLS"/*/"$name" "$SLURM_NODES"/*/"$name" 2>/dev/null | sort -u | grep . | grep -vxFf "$base/$name" || :
}

# topology.conf: a leaf switch a site, all of them under the tailnet. Sites without a node are left out: Slurm refuses
# a switch that has none.
topology() {
    local path site node sites=''
    local -A nodes=()
    for path in "$SLURM_NODES"/*/site; do
        [ -e "$path" ] || continue
        node=${path%/site}
        site=$(<"$path")
        nodes[$site]+=${nodes[$site]:+,}${node##*/}
    done
    [ ${#nodes[@]} -gt 0 ] || return 0
    while read -r site; do
        printf 'SwitchName=%s Nodes=%s\n' "$site" "${nodes[$site]}"
        sites+=${sites:+,}$site
    done < <(printf '%s\n' "${!nodes[@]}" | sort)
    printf 'SwitchName=tailnet Switches=%s\n' "$sites"
}

# Partitions with a DefMemPerCPU: what a job gets that asks for no memory is its CPUs' share of the smallest of the
# partition's nodes. Without one it would get a whole node's. A default of the user's own stays alone: Slurm takes the
# partition's before it.
with_default_memory() {
    local text=$1
    if grep -qi '^DefMemPer' <<<"$text"; then
        printf '%s' "$text"
        return
    fi
    { cat "$SLURM_NODES"/*/memory 2>/dev/null || :; } | awk '
        members { if (!($1 in least) || $2 < least[$1]) least[$1] = $2; next }
        /^PartitionName=/ {
            smallest = 0
            match($0, /Nodes=[^ ]*/)
            count = split(substr($0, RSTART + 6, RLENGTH - 6), sets, ",")
            for (i = 1; i <= count; i++)
                if (sets[i] in least && (!smallest || least[sets[i]] < smallest)) smallest = least[sets[i]]
            if (smallest) $0 = $0 " DefMemPerCPU=" smallest
        }
        { print }' members=1 - members=0 <(printf '%s\n' "$text")
}

# gres.conf includes a file of each machine's own (gres.sh). Nodes of versions before 0.1 have none: for as long as one of
# those is a member, all lines are here.
gres_conf() {
    if compgen -G "$SLURM_NODES/*/gres.conf" >/dev/null; then
        grep -v '^Include ' "$1"
        cat "$SLURM_NODES"/*/gres.conf "$SLURM_NODES"/*/gres 2>/dev/null | sort -u | grep . || :
    else
        cat "$1"
    fi
}

# The files that a base makes with what nodes and pools add, in a directory.
write_slurm_files() {
    local base=$1 into=$2 path name added text
    for path in "$base"/*; do
        name=${path##*/}
        # The fabric of each node (fabric/fabric.py) is a comment, for the node's own eyes: Slurm brings the file there.
        if [ "$name" = topology.conf ]; then added=$(topology; cat "$SLURM_NODES"/*/fabric 2>/dev/null || :); else added=$(added_lines "$base" "$name"); fi
        text=$(cat "$path")${added:+$'\n'$added}
        case $name in
            slurm.conf) text=$(with_default_memory "$text") ;;
            gres.conf) text=$(gres_conf "$path") ;;
        esac
        ensure_file "$into/$name" 0644 root:root "$text"
    done
}

# Names of files in a directory that slurmctld has not taken as they are, one a line.
not_taken() {
    local path
    for path in "${@:2}"; do cmp -s "$1/$path" "$SLURM_TAKEN/$path" || printf '%s\n' "$path"; done
}

# Another process, once slurmctld has read its files anew, however it came to that: since 23.11 a reconfiguration is one.
controller_process() { systemctl show -p MainPID --value slurmctld; }

# Have a slurmctld that runs take its files. Whatever is the matter with it then, it runs again: releases that people have may
# hang for ever in this (24.11.5), or crash (25.11.2), and jobs go on without it (docs/decisions/0015).
reconfigure_controller() {
    local before status=0
    before=$(controller_process)
    note "reconfiguring slurmctld"
    timeout -k 5 "$RECONFIGURE_LIMIT" scontrol reconfigure || status=$?
    [ "$status" -ne 0 ] || return 0
    # Asked with the files that it has: what it refuses, scontrol itself may not read.
    if ! SLURM_CONF=$SLURM_TAKEN/slurm.conf wait_until 30 controller_answers; then
        note "slurmctld does not answer any more: it is started again"
        systemctl restart slurmctld
        wait_until 60 controller_answers
        return
    fi
    [ "$(controller_process)" != "$before" ]
}

# Have slurmctld take the files made from a base: where they are other ones than it has, or for `always`, which has it look
# for new nodes too. Where it refuses them, the last ones that it took come back, what it said is in the log, and REFUSED says
# what happened. Under lock_slurm_files.
offer_slurm_files() {
    local base=$1 always=${2:-} begin name names
    mapfile -t names < <(ls "$base")
    [ ! -e "$SLURM_SERVED" ] || always=yes
    begin=$(date +%s)
    REFUSED=''
    write_slurm_files "$base" "$SLURM_DIR"
    if ! systemctl -q is-active slurmctld; then
        systemctl restart slurmctld || REFUSED="slurmctld does not start with this configuration"
    elif [ -n "$always$(not_taken "$SLURM_DIR" "${names[@]}")" ]; then
        reconfigure_controller || REFUSED="slurmctld refuses the new configuration and goes on with the old one"
    fi
    if [ -n "$REFUSED" ]; then
        journalctl -u slurmctld --since "@$begin" -n 8 -o cat --no-pager
        take_back_slurm_files
        return 1
    fi
    wait_until 60 controller_answers || fail "slurmctld does not answer" "see 'journalctl -u slurmctld' on $HOST_NAME"
    mkdir -p "$SLURM_TAKEN"
    for name in "${names[@]}"; do install -m 0644 "$SLURM_DIR/$name" "$SLURM_TAKEN/"; done
    rm -f "$SLURM_SERVED"
}

take_back_slurm_files() {
    [ -d "$SLURM_TAKEN" ] || return 0
    cp -p "$SLURM_TAKEN"/* "$SLURM_DIR/"
    systemctl -q is-active slurmctld || systemctl restart slurmctld || note "slurmctld does not start with the old files"
}
