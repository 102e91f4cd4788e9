#!/bin/bash
# uses: slurm/releases slurm_release/packages
# Whether the cluster that is here can have this release: its controller reads what the one before has written, and takes
# the nodes that still have theirs. Before anything is changed.
#
# SLURM_RELEASE           release that the machine will have
# SLURM_RELEASE_WINDOWS   `release oldest`, one a line: the oldest release whose state and nodes one takes

# The version of the controller that is installed; nothing where there is none.
controller_here() {
    # shellcheck disable=SC2016  # read by dpkg-query
    dpkg-query -W -f='${db:Status-Status} ${Version}\n' slurmctld slurm-smd-slurmctld 2>/dev/null | sed -n 's/^installed //p'
}

# The oldest release that one takes.
window_of() { awk -v release="$1" '$1 == release {print $2}' <<<"$SLURM_RELEASE_WINDOWS"; }

# The newest release that takes one of this.
newest_after() {
    local release oldest found=''
    while read -r release oldest; do
        if ! older "$1" "$oldest"; then found=$release; fi
    done <<<"$SLURM_RELEASE_WINDOWS"
    printf '%s' "$found"
}

slurm_release_check_head() {
    local before oldest node version
    [ -e /var/lib/slurm/slurmctld/clustername ] || return 0
    before=$(upstream_of "$(controller_here)")
    [ -n "$before" ] || return 0
    oldest=$(window_of "$(release_of "$SLURM_RELEASE")")
    if older "$SLURM_RELEASE" "$before"; then
        fail "the cluster has Slurm $before, and the config names $SLURM_RELEASE; no release reads what a newer one has written" \
            "write $before or newer as tailrack:slurm.release"
    fi
    if older "$(release_of "$before")" "$oldest"; then
        fail "Slurm $SLURM_RELEASE reads the state of $oldest and newer, and the cluster has $before" \
            "go by way of $(newest_after "$(release_of "$before")"): write a release of it as tailrack:slurm.release first, run up, then this one"
    fi
    while read -r node version; do
        if [[ $version =~ ^[0-9] ]] && older "$(release_of "$version")" "$oldest"; then
            fail "node $node has Slurm $version, and a controller of $SLURM_RELEASE takes $oldest and newer" \
                "bring $node to the cluster's release first (up of its stack), or take it out"
        fi
    done < <(timeout 20 sinfo -h -N -o '%N %v' 2>/dev/null)
    [ "$before" = "$SLURM_RELEASE" ] || note "Slurm $before will be $SLURM_RELEASE; jobs go on"
}
