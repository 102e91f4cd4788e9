#!/bin/bash
# uses: slurm/releases
# Reserve nodes that wait for their release. Since 25.11 srun uses only its own machine's release
# (components/roles/slurm/versions.py), so with such a release on the head node it cannot start steps on older nodes. No
# job starts there until the node has the release and leaves the reservation; running jobs continue.

WAITING=tailrack-older
# The first release with such an srun.
ONE_RELEASE_SINCE=25.11

# Print the waiting nodes, one per line.
waiting_nodes() {
    timeout 20 scontrol -o show reservation "$WAITING" 2>/dev/null | sed -nE 's/.* Nodes=([^ ]+) .*/\1/p' |
        xargs -r scontrol show hostnames
}

# Reserve older nodes. Runs on the head node while the old controller still answers: the new release.
hold_older_nodes() {
    local new_release older_nodes arguments
    new_release=$(release_of "$1")
    if older "$new_release" "$ONE_RELEASE_SINCE"; then return 0; fi
    older_nodes=$(timeout 20 sinfo -h -a -N -o '%N %v' | awk -v own="$HOST_NAME" -v release="$new_release." \
        '$1 != own && index($2, release) != 1 {print $1}' | sort -u | tr '\n' ,)
    older_nodes=${older_nodes%,}
    [ -n "$older_nodes" ] || return 0
    note "no job starts on $older_nodes until these nodes have the release"
    arguments=("reservationname=$WAITING" "nodes=$older_nodes")
    if [ -n "$(waiting_nodes)" ]; then
        scontrol update "${arguments[@]}"
    else
        scontrol create reservation "${arguments[@]}" starttime=now duration=infinite users=root flags=maint,ignore_jobs
    fi
}

leave_reservation() {
    local waiting
    waiting=$(waiting_nodes)
    grep -qxF "$1" <<<"$waiting" || return 0
    if [ "$waiting" = "$1" ]; then
        scontrol delete "reservationname=$WAITING"
    else
        scontrol update "reservationname=$WAITING" "nodes-=$1"
    fi
}

# Remove a node from the reservation, because it has the release or leaves: its name.
unreserve_node() {
    wait_until 20 leave_reservation "$1" || note "$1 is still in the reservation $WAITING"
}
