#!/bin/bash
# slurmctld's files: the cluster's files from the head step, and separate files with the lines of each node and pool, so
# that one that joins or leaves changes no other's. slurmctld serves the result to all nodes (configless) and is
# reconfigured, not restarted.

SLURM_DIR=/etc/slurm
# The cluster's files that slurmctld last accepted.
SLURM_BASE=$STATE_DIR/slurm/base
# Parts of nodes: <node>/<file> contains lines for the file, <node>/site its switch, <node>/memory the memory per CPU
# of its jobs for each of its NodeSets, <node>/owner its pool (empty for the cluster's stack).
SLURM_NODES=$STATE_DIR/slurm/nodes
# Parts of pools: <pool>/slurm.conf contains the partitions of its sites, <pool>/nodes the names of its nodes.
SLURM_POOLS=$STATE_DIR/slurm/pools
# Parts of roles that the head node adds once it runs: <role>/<file> contains lines for the file.
SLURM_SERVICES=$STATE_DIR/slurm/services
# All files that slurmctld last accepted. They come back when it rejects newer ones, so that the machine matches the
# stack's state and an interrupted step does not pass for done.
SLURM_TAKEN=$STATE_DIR/slurm/taken

controller_answers() { scontrol ping 2>/dev/null | grep 'is UP' >/dev/null; }
# Fails if scontrol cannot read the files itself and prints neither.
controller_is_silent() { scontrol ping 2>/dev/null | grep 'is DOWN' >/dev/null; }
controller_process() { systemctl show -P MainPID slurmctld; }
# Succeed if slurmctld keeps running: one that starts is ready for systemd and answers before it has read all its files.
controller_stays() {
    local process
    process=$(controller_process)
    controller_answers && sleep 3 && systemctl -q is-active slurmctld && [ "$(controller_process)" = "$process" ]
}

# Print the lines that nodes, pools and roles add to a file and that the file does not contain, each once.
added_lines() {
    local base=$1 name=$2
    # Most files get no lines, and every member's step asks for all of them under the lock.
    compgen -G "$SLURM_SERVICES/*/$name" >/dev/null || compgen -G "$SLURM_POOLS/*/$name" >/dev/null ||
        compgen -G "$SLURM_NODES/*/$name" >/dev/null || return 0
    cat "$SLURM_SERVICES"/*/"$name" "$SLURM_POOLS"/*/"$name" "$SLURM_NODES"/*/"$name" 2>/dev/null | sort -u | grep . | grep -vxFf "$base/$name" || :
}

# Print topology.conf's lines: one leaf switch per site, all below the tailnet. Slurm rejects a switch without nodes, so
# sites without nodes are left out.
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

# Print slurm.conf with a DefMemPerCPU for each partition: a CPU's share of its smallest node. Without it, a job that
# asks for no memory would get a whole node's. If the user sets a default, add none: Slurm would prefer the partition's.
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

# Print gres.conf, which includes each machine's own file (join.sh). Nodes from before version 0.1 have no such file:
# while one is a member, print all lines.
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
        # Each node's fabric (fabric/fabric.py) is a comment for that node; Slurm delivers it with the file.
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

slurm_files_unchanged() {
    local name
    for name in "$@"; do
        cmp -s "$SLURM_DIR/$name" "$SLURM_TAKEN/$name" || return 1
    done
}

# Have the running slurmctld read its files again. Set REFUSED if it does not.
reconfigure_controller() {
    local process
    process=$(controller_process)
    note "reconfiguring slurmctld"
    if scontrol reconfigure; then return; fi
    # Check for silence first: the watchdog may restart a hanging slurmctld before anything answers.
    if ! controller_is_silent && [ "$(controller_process)" = "$process" ]; then
        REFUSED="slurmctld rejects the new configuration and keeps the old one"
        return
    fi
    # It has ended, or it hangs and its watchdog ends it; it restarts with these files.
    wait_until 60 controller_stays || REFUSED="slurmctld rejects the new configuration; it restarts with the old one"
}

# Print slurmctld's errors since a time, or its last lines if it logged no errors.
controller_errors() {
    local lines
    journalctl --sync || :
    lines=$(journalctl -u slurmctld --since "@$1" -o cat --no-pager)
    grep -E '(error|fatal): ' <<<"$lines" | tail -n 12 || tail -n 12 <<<"$lines"
}

# Start slurmctld with these files. Where it has never run, there is no old configuration to restore, so do not wait.
start_controller() {
    systemctl restart slurmctld && { [ ! -d "$SLURM_TAKEN" ] || wait_until 60 controller_stays; } ||
        REFUSED="slurmctld does not start with this configuration"
}

# slurmctld has read its files once it answers.
await_controller() { [ -n "$REFUSED" ] || wait_until 120 controller_answers || REFUSED="slurmctld does not answer"; }

# Give slurmctld the files made from a base folder if one of the named files has changed (default: all). If it rejects
# them, log its errors, restore the last accepted files, set REFUSED and fail.
offer_slurm_files() {
    local base=$1 begin names=("${@:2}") all
    [ ${#names[@]} -gt 0 ] || mapfile -t names < <(ls "$base")
    begin=$(date +%s)
    REFUSED=''
    write_slurm_files "$base"
    if ! systemctl -q is-active slurmctld; then
        start_controller
        await_controller
    elif ! slurm_files_unchanged "${names[@]}"; then
        reconfigure_controller
        await_controller
    fi
    if [ -n "$REFUSED" ]; then
        controller_errors "$begin"
        restore_slurm_files
        return 1
    fi
    mkdir -p "$SLURM_TAKEN"
    all=("$base"/*)
    install -m 0644 -t "$SLURM_TAKEN" "${all[@]/#"$base"/$SLURM_DIR}"
}

restore_slurm_files() {
    [ -d "$SLURM_TAKEN" ] || return 0
    cp -p "$SLURM_TAKEN"/* "$SLURM_DIR/"
    systemctl -q is-active slurmctld || systemctl restart slurmctld || note "slurmctld does not start with the old files"
    wait_until 60 controller_answers || note "slurmctld does not answer with the old files either"
}
