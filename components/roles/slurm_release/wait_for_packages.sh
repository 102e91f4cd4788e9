#!/bin/bash
# uses: slurm/releases
# Since 25.11 srun speaks the release of its own machine alone (components/roles/slurm/versions.py): once the head node has
# such a one it starts nothing on nodes that are older. So no job is sent there until a node's turn has come; those that run
# there go on. The controller keeps these nodes as a reservation, which each leaves when it has the release.

WAITING=tailrack-older
# The first release whose srun does so.
ONE_RELEASE_SINCE=25.11

# Nodes that wait, one a line.
waiting_nodes() {
    timeout 20 scontrol -o show reservation "$WAITING" 2>/dev/null | sed -nE 's/.* Nodes=([^ ]+) .*/\1/p' |
        xargs -r scontrol show hostnames
}

# On the head node, while the controller that is there still answers. Word: the release that comes.
hold_older_nodes() {
    local comes behind asked
    comes=$(release_of "$1")
    if older "$comes" "$ONE_RELEASE_SINCE"; then return 0; fi
    behind=$(timeout 20 sinfo -h -a -N -o '%N %v' | awk -v own="$HOST_NAME" -v release="$comes." \
        '$1 != own && index($2, release) != 1 {print $1}' | sort -u | tr '\n' ,)
    behind=${behind%,}
    [ -n "$behind" ] || return 0
    note "until their turn no job starts on $behind"
    asked=("reservationname=$WAITING" "nodes=$behind")
    if [ -n "$(waiting_nodes)" ]; then
        scontrol update "${asked[@]}"
    else
        scontrol create reservation "${asked[@]}" starttime=now duration=infinite users=root flags=maint,ignore_jobs
    fi
}

let_go() {
    local held
    held=$(waiting_nodes)
    grep -qxF "$1" <<<"$held" || return 0
    if [ "$held" = "$1" ]; then
        scontrol delete "reservationname=$WAITING"
    else
        scontrol update "reservationname=$WAITING" "nodes-=$1"
    fi
}

# Word: a node that has the release, or leaves.
waits_no_longer() {
    wait_until 20 let_go "$1" || note "$1 is still in the reservation $WAITING"
}
