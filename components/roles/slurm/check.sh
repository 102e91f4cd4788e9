#!/bin/bash
# uses: slurm/releases slurm/others slurm_release/packages
# Slurm's version, installed or to be installed, and whether systemd can confine jobs by cgroups.
#
# SLURM_RELEASE   the config's own release; empty where it is the distribution's

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

major_of() {
    local version
    version=$(version_of "$1")
    version=${version#*:}
    version=${version%%.*}
    [[ ! $version =~ ^[1-9][0-9]?$ ]] || printf '%s' "$version"
}

# What brings ranks together, such as 5-pmix5: Open MPI's major version, and that of PMIx, by which Slurm's plugins of it are
# told apart (srun asks all nodes of a job for its own). Others do not speak with each other. Nothing where no source has it.
mpi_of_machine() {
    local mpi pmix
    mpi=$(major_of openmpi-bin)
    [ -n "$mpi" ] || return 0
    pmix=$(major_of libpmix2t64)
    [ -n "$pmix" ] || pmix=$(major_of libpmix2)
    printf '%s' "$mpi${pmix:+-pmix$pmix}"
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

find_slurm_version() {
    SLURM_VERSION=$SLURM_RELEASE
    if [ -n "$SLURM_VERSION" ]; then
        # What is found of MPI afterwards is found in the lists too.
        [ -n "$(version_of openmpi-bin)" ] || refresh_package_lists_now
        return
    fi
    [ ! -e "$SLURM_INSTALLED" ] || fail "this machine has a release of Slurm that the config no longer names ($(<"$SLURM_INSTALLED"))" \
        "write tailrack:slurm.release again: what a distribution has is no upgrade of it; or take $HOST_NAME out of the \
cluster, 'apt-get purge slurm-smd*' there, and bring it in anew"
    SLURM_VERSION=$(version_of slurmd)
    if [ -z "$SLURM_VERSION" ]; then
        refresh_package_lists_now
        SLURM_VERSION=$(version_of slurmd)
    fi
    [ -n "$SLURM_VERSION" ] || fail "no package source here has slurmd" \
        "add Debian's or Ubuntu's (universe) package source, or $(one_release "$SLURM_ADVISED")"
}

slurm_check() {
    local path cluster
    while read -r path; do
        cluster=$(sed -nE 's/^[[:space:]]*ClusterName=([^[:space:]]+).*/\1/Ip' "$path")
        found_foreign "$path${cluster:+ of cluster $cluster}"
    done < <(slurm_files_of_others)
    find_slurm_version
    CGROUPS=$(yes_no cgroups_delegated)
    result cgroups "$CGROUPS"
    result mpi "$(json_string "$(mpi_of_machine)")"
    result slurm_version "$(json_string "$SLURM_VERSION")"
}
