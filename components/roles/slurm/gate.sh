#!/bin/bash
# uses: slurm/others
# Slurm's version, installed or to be installed, and whether systemd can confine jobs by cgroups.

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

# A controller may be given to a unit only where the hierarchy is the unified one and its controllers are there.
cgroups_delegated() { [ -s /sys/fs/cgroup/cgroup.controllers ] && grep -qw memory /sys/fs/cgroup/cgroup.controllers; }

slurm_gate() {
    local path cluster
    while read -r path; do
        cluster=$(sed -nE 's/^[[:space:]]*ClusterName=([^[:space:]]+).*/\1/Ip' "$path")
        found_of_others "$path${cluster:+ of cluster $cluster}"
    done < <(slurm_files_of_others)
    SLURM_VERSION=$(version_of slurmd)
    if [ -z "$SLURM_VERSION" ]; then
        refresh_package_lists
        SLURM_VERSION=$(version_of slurmd)
    fi
    [ -n "$SLURM_VERSION" ] || fail "no package source here has slurmd" \
        "add Debian's or Ubuntu's (universe) package source"
    CGROUPS=$(yes_no cgroups_delegated)
    result cgroups "$CGROUPS"
    result slurm_version "$(json_string "$SLURM_VERSION")"
}
