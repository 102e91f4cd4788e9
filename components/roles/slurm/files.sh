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
# What roles of the head node add once it is there: <role>/<file> has lines for the file.
SLURM_SERVICES=$STATE_DIR/slurm/services
# All files as slurmctld last took them. Where it refuses others, these come back, so that the machine is as the
# stack's state says and a step that was cut off is not taken for done.
SLURM_TAKEN=$STATE_DIR/slurm/taken

controller_answers() { scontrol ping 2>/dev/null | grep 'is UP' >/dev/null; }
# Not so where scontrol says neither, as it cannot read the files itself.
controller_is_silent() { scontrol ping 2>/dev/null | grep 'is DOWN' >/dev/null; }
controller_process() { systemctl show -P MainPID slurmctld; }
# One that starts is ready for systemd, and answers, before it has taken all its files: it runs if it still does so later.
controller_stays() {
    local process
    process=$(controller_process)
    controller_answers && sleep 3 && systemctl -q is-active slurmctld && [ "$(controller_process)" = "$process" ]
}

# Lines that nodes and pools add to a file and that its own text does not have, each once.
added_lines() {
    local base=$1 name=$2
    # Most files nobody adds to, and each member's step asks for all of them under the lock.
    compgen -G "$SLURM_SERVICES/*/$name" >/dev/null || compgen -G "$SLURM_POOLS/*/$name" >/dev/null ||
        compgen -G "$SLURM_NODES/*/$name" >/dev/null || return 0
    cat "$SLURM_SERVICES"/*/"$name" "$SLURM_POOLS"/*/"$name" "$SLURM_NODES"/*/"$name" 2>/dev/null | sort -u | grep . | grep -vxFf "$base/$name" || :
}

# topology.conf: a leaf switch a site, all of them under the tailnet. Sites without a node are left out: Slurm refuses
# a switch that has none.
topology() {
    local path site node sites=''
    local -A nodes=()
    for path in "$SLURM_NODES"/*/site; do
        [ -e "$path" ] || continue
        node=${path%/site}
        read -r site <"$path" || continue
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

# gres.conf includes a file of each machine's own (join.sh). Nodes of versions before 0.1 have none: for as long as one of
# those is a member, all lines are here.
gres_conf() {
    if compgen -G "$SLURM_NODES/*/gres.conf" >/dev/null; then
        grep -v '^Include ' "$1"
        cat "$SLURM_NODES"/*/gres.conf "$SLURM_NODES"/*/gres 2>/dev/null | sort -u | grep . || :
    else
        cat "$1"
    fi
}

write_slurm_files() {
    local base=$1 path name added text files=()
    for path in "$base"/*; do
        name=${path##*/}
        # The fabric of each node (fabric/fabric.py) is a comment, for the node's own eyes: Slurm brings the file there.
        if [ "$name" = topology.conf ]; then added=$(topology; cat "$SLURM_NODES"/*/fabric 2>/dev/null || :); else added=$(added_lines "$base" "$name"); fi
        text=$(<"$path")${added:+$'\n'$added}
        case $name in
            slurm.conf) text=$(with_default_memory "$text") ;;
            gres.conf) text=$(gres_conf "$path") ;;
        esac
        files+=("$SLURM_DIR/$name" 0644 root:root "$text")
    done
    ensure_files "${files[@]}"
}

slurm_files_taken() {
    local name
    for name in "$@"; do
        cmp -s "$SLURM_DIR/$name" "$SLURM_TAKEN/$name" || return 1
    done
}

# Have the slurmctld that runs take its files anew. Where it does not, REFUSED says so.
reconfigure_controller() {
    local process
    process=$(controller_process)
    note "reconfiguring slurmctld"
    if scontrol reconfigure; then return; fi
    # It is asked first: one that hangs may have been started again by the time that anybody answers.
    if ! controller_is_silent && [ "$(controller_process)" = "$process" ]; then
        REFUSED="slurmctld refuses the new configuration and goes on with the old one"
        return
    fi
    # It has ended, or hangs and its watchdog ends it: it is started again with these files.
    wait_until 60 controller_stays || REFUSED="slurmctld refuses the new configuration: it is started again with the old one"
}

# What slurmctld said since: its errors, or the last lines where it gave none.
controller_said() {
    local lines
    journalctl --sync || :
    lines=$(journalctl -u slurmctld --since "@$1" -o cat --no-pager)
    grep -E '(error|fatal): ' <<<"$lines" | tail -n 12 || tail -n 12 <<<"$lines"
}

# Start it with them. There is nothing to go back to, and nobody to keep waiting for it, where it has never run.
start_controller() {
    systemctl restart slurmctld && { [ ! -d "$SLURM_TAKEN" ] || wait_until 60 controller_stays; } ||
        REFUSED="slurmctld does not start with this configuration"
}

# What it was told it has taken when it answers.
await_controller() { [ -n "$REFUSED" ] || wait_until 120 controller_answers || REFUSED="slurmctld does not answer"; }

# Have slurmctld take the files made from a base, where one of those named has changed (of all of them, if none is). Where
# it refuses them, the last ones that it took come back, what it said is in the log, and REFUSED says what happened.
offer_slurm_files() {
    local base=$1 begin names=("${@:2}") all
    [ ${#names[@]} -gt 0 ] || mapfile -t names < <(ls "$base")
    begin=$(date +%s)
    REFUSED=''
    write_slurm_files "$base"
    if ! systemctl -q is-active slurmctld; then
        start_controller
        await_controller
    elif ! slurm_files_taken "${names[@]}"; then
        reconfigure_controller
        await_controller
    fi
    if [ -n "$REFUSED" ]; then
        controller_said "$begin"
        take_back_slurm_files
        return 1
    fi
    mkdir -p "$SLURM_TAKEN"
    all=("$base"/*)
    install -m 0644 -t "$SLURM_TAKEN" "${all[@]/#"$base"/$SLURM_DIR}"
}

take_back_slurm_files() {
    [ -d "$SLURM_TAKEN" ] || return 0
    cp -p "$SLURM_TAKEN"/* "$SLURM_DIR/"
    systemctl -q is-active slurmctld || systemctl restart slurmctld || note "slurmctld does not start with the old files"
    wait_until 60 controller_answers || note "slurmctld does not answer with the old files either"
}
