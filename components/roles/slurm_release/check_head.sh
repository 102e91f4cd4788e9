#!/bin/bash
# uses: slurm/releases slurm_release/packages
# Check that this cluster can have the release, before any change: the controller must read the state of the installed
# one, and accept nodes that still have the old release.
#
# SLURM_RELEASE           release that the machine will have
# SLURM_RELEASE_WINDOWS   `release oldest`, one per line: the oldest release whose state and nodes each accepts

installed_controller() {
    # shellcheck disable=SC2016  # read by dpkg-query
    dpkg-query -W -f='${db:Status-Status} ${Version}\n' slurmctld slurm-smd-slurmctld 2>/dev/null | sed -n 's/^installed //p'
}

oldest_accepted() { awk -v release="$1" '$1 == release {print $2}' <<<"$SLURM_RELEASE_WINDOWS"; }

# Print the newest release that accepts a release.
newest_upgrade() {
    local release oldest newest=''
    while read -r release oldest; do
        if ! older "$1" "$oldest"; then newest=$release; fi
    done <<<"$SLURM_RELEASE_WINDOWS"
    printf '%s' "$newest"
}

slurm_release_check_head() {
    local current oldest node version
    [ -e /var/lib/slurm/slurmctld/clustername ] || return 0
    current=$(upstream_of "$(installed_controller)")
    [ -n "$current" ] || return 0
    oldest=$(oldest_accepted "$(release_of "$SLURM_RELEASE")")
    if older "$SLURM_RELEASE" "$current"; then
        fail "the cluster has Slurm $current, and the config names $SLURM_RELEASE, which cannot read the newer release's state" \
            "set tailrack:slurm.release to $current or newer"
    fi
    if older "$(release_of "$current")" "$oldest"; then
        fail "Slurm $SLURM_RELEASE reads the state of $oldest and newer, and the cluster has $current" \
            "upgrade by way of $(newest_upgrade "$(release_of "$current")"): set tailrack:slurm.release to a release of it, run up, then set this one"
    fi
    while read -r node version; do
        if [[ $version =~ ^[0-9] ]] && older "$(release_of "$version")" "$oldest"; then
            fail "node $node has Slurm $version, and a controller of $SLURM_RELEASE accepts $oldest and newer" \
                "upgrade $node to the cluster's release first (up of its stack), or remove it"
        fi
    done < <(timeout 20 sinfo -h -N -o '%N %v' 2>/dev/null)
    [ "$current" = "$SLURM_RELEASE" ] || note "upgrading Slurm $current to $SLURM_RELEASE; jobs continue"
}
