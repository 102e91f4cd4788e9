#!/bin/bash
# uses: slurm/releases slurm/others
# Slurm's version, installed or to be installed, and whether systemd can confine jobs by cgroups.

# The first release whose slurmd has `--systemd`, and with `-Z` a node that a controller creates and deletes.
SLURM_NEEDED=23.11

# The version apt would install, or the one that is there.
version_of() {
    local installed
    # A package that was removed and left its configuration behind has a version too.
    installed=$(dpkg-query -W -f='${db:Status-Status} ${Version}' "$1" 2>/dev/null | sed -n 's/^installed //p' || :)
    if [ -n "$installed" ]; then
        printf '%s' "$installed"
    else
        candidate_of "$1"
    fi
}

# Slurm works in the cgroup that systemd works in, and on the unified hierarchy alone: where others are mounted beside it,
# slurmd ends ("Hybrid mode is not supported"). Files of cgroupfs have size 0 whatever is in them.
cgroups_delegated() {
    local own controllers
    own=$(sed -n '1s/^0:://p' /proc/1/cgroup)
    [ -n "$own" ] || return 1
    controllers=$(cat "/sys/fs/cgroup${own%/init.scope}/cgroup.controllers")
    [[ " $controllers " == *" memory "* && " $controllers " == *" cpuset "* ]]
}

slurm_gate() {
    local path cluster
    while read -r path; do
        cluster=$(sed -nE 's/^[[:space:]]*ClusterName=([^[:space:]]+).*/\1/Ip' "$path")
        found_foreign "$path${cluster:+ of cluster $cluster}"
    done < <(slurm_files_of_others)
    SLURM_VERSION=$(version_of slurmd)
    if [ -z "$SLURM_VERSION" ]; then
        refresh_package_lists
        SLURM_VERSION=$(version_of slurmd)
    fi
    [ -n "$SLURM_VERSION" ] || fail "no package source here has slurmd" \
        "add Debian's or Ubuntu's (universe) package source"
    older "$(release_of "$SLURM_VERSION")" "$SLURM_NEEDED" && fail \
        "Slurm $(release_of "$SLURM_VERSION") here is too old: nodes that come and go need $SLURM_NEEDED or newer" \
        "take a newer image for $HOST_NAME (Debian 13, Ubuntu 24.04), or a package source with a newer Slurm"
    CGROUPS=$(yes_no cgroups_delegated)
    result cgroups "$CGROUPS"
    result slurm_version "$(json_string "$SLURM_VERSION")"
}
