#!/bin/bash
# uses: slurm/releases slurm/foreign_files slurm_release/packages
# Check Slurm's version, installed or available, and whether systemd can confine jobs with cgroups.
#
# SLURM_RELEASE   the config's release; empty for the distribution's

# Print the installed version of a package, or the one that apt would install.
version_of() {
    local installed
    # A removed package that left its configuration has a version too.
    installed=$(dpkg-query -W -f='${db:Status-Status} ${Version}' "$1" 2>/dev/null | sed -n 's/^installed //p' || :)
    if [ -n "$installed" ]; then
        printf '%s' "$installed"
    else
        candidate_of "$1"
    fi
}

major_of() {
    local version
    version=$(version_of "$1")
    version=${version#*:}
    version=${version%%.*}
    [[ ! $version =~ ^[1-9][0-9]?$ ]] || printf '%s' "$version"
}

# Print the launch library of MPI jobs, such as 5-pmix5: the major versions of Open MPI and PMIx. Slurm names its PMIx
# plugins by that number, and srun asks all nodes of a job for its own. Print nothing if no source has Open MPI.
mpi_of_machine() {
    local mpi pmix
    mpi=$(major_of openmpi-bin)
    [ -n "$mpi" ] || return 0
    pmix=$(major_of libpmix2t64)
    [ -n "$pmix" ] || pmix=$(major_of libpmix2)
    printf '%s' "$mpi${pmix:+-pmix$pmix}"
}

# Succeed if systemd's own cgroup has the controllers that Slurm needs. Slurm uses the unified hierarchy only: slurmd
# exits if others are mounted ("Hybrid mode is not supported"). Files of cgroupfs have size 0, so read them.
cgroups_delegated() {
    local cgroup controllers
    cgroup=$(sed -n '1s/^0:://p' /proc/1/cgroup)
    [ -n "$cgroup" ] || return 1
    controllers=$(cat "/sys/fs/cgroup${cgroup%/init.scope}/cgroup.controllers")
    [[ " $controllers " == *" memory "* && " $controllers " == *" cpuset "* ]]
}

find_slurm_version() {
    SLURM_VERSION=$SLURM_RELEASE
    if [ -n "$SLURM_VERSION" ]; then
        # mpi_of_machine needs the lists later.
        [ -n "$(version_of openmpi-bin)" ] || refresh_package_lists_now
        return
    fi
    [ ! -e "$SLURM_INSTALLED" ] || fail "this machine has a Slurm release that the config no longer names ($(<"$SLURM_INSTALLED"))" \
        "set tailrack:slurm.release again, because the distribution's Slurm is no upgrade of it; or take $HOST_NAME out of the \
cluster, run 'apt-get purge slurm-smd*' there, and add it again"
    SLURM_VERSION=$(version_of slurmd)
    if [ -z "$SLURM_VERSION" ]; then
        refresh_package_lists_now
        SLURM_VERSION=$(version_of slurmd)
    fi
    [ -n "$SLURM_VERSION" ] || fail "no package source of this machine has slurmd" \
        "add Debian's or Ubuntu's (universe) package source, or $(one_release_remedy "$SLURM_ADVISED")"
}

slurm_check() {
    local path cluster
    while read -r path; do
        cluster=$(sed -nE 's/^[[:space:]]*ClusterName=([^[:space:]]+).*/\1/Ip' "$path")
        found_foreign "$path${cluster:+ of cluster $cluster}"
    done < <(foreign_slurm_files)
    find_slurm_version
    CGROUPS=$(yes_no cgroups_delegated)
    result cgroups "$CGROUPS"
    result mpi "$(json_string "$(mpi_of_machine)")"
    result slurm_version "$(json_string "$SLURM_VERSION")"
}
