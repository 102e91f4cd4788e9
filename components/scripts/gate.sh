#!/bin/bash
# Look at a machine before anything on it is changed: facts as JSON, and the rules that must hold.
#
# CONTROLLER_SLURM  version the head node will run; empty on the head itself
# SLURM_OLDEST      oldest release that controller accepts; empty on the head
# WANT_GPU_KIND, WANT_GPU_COUNT   what the config promises; empty and 0 when it promises none
# WANT_CGROUPS      yes when the cluster's Slurm confines jobs by cgroups; empty on the head
: "${SLURM_OLDEST=}" "${CONTROLLER_SLURM=}" "${WANT_GPU_KIND=}" "${WANT_GPU_COUNT:=0}" "${WANT_CGROUPS=}"

yes_no() { if "$@" >/dev/null 2>&1; then echo true; else echo false; fi; }

# The version apt would install, or the one that is there.
version_of() {
    local installed
    # A package that was removed and left its configuration behind has a version too.
    installed=$(dpkg-query -W -f='${db:Status-Status} ${Version}' "$1" 2>/dev/null | sed -n 's/^installed //p' || :)
    if [ -n "$installed" ]; then
        printf '%s' "$installed"
    else
        apt-cache policy "$1" 2>/dev/null | awk '$1 == "Candidate:" && $2 != "(none)" {print $2}'
    fi
}

release_of() { printf '%s' "$1" | sed -E 's/^[0-9]+://; s/^([0-9]+\.[0-9]+).*/\1/'; }

older() { [ "$1" != "$2" ] && [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

kernel_knows() { grep -qw "$1" /proc/filesystems || modprobe -n "$1"; }

# A controller may be given to a unit only where the hierarchy is the unified one and its controllers are there.
cgroups_delegated() { [ -s /sys/fs/cgroup/cgroup.controllers ] && grep -qw memory /sys/fs/cgroup/cgroup.controllers; }

tun_there() { [ -c /dev/net/tun ] && : 2>/dev/null <>/dev/net/tun; }

gpu_count() { find /dev -maxdepth 1 -regex '/dev/nvidia[0-9]+' | wc -l; }

up() {
    [ "$(id -u)" -eq 0 ] || fail "the login is not root and sudo gave no root" \
        "give the user password-less sudo (NOPASSWD:ALL) on $HOST_NAME"
    [ -d /run/systemd/system ] || fail "systemd does not run here; the daemons of a node are its units" \
        "use a machine or a container with systemd as its first process"
    command -v apt-get >/dev/null || fail "this is not Debian or Ubuntu: there is no apt-get"
    tun_there || fail "there is no working /dev/net/tun; Slurm needs the tailnet as an interface of the kernel" \
        "load the module tun, or give the container /dev/net/tun and NET_ADMIN"
    local slurm munge
    slurm=$(version_of slurmd)
    if [ -z "$slurm" ]; then
        apt-get -q update
        slurm=$(version_of slurmd)
    fi
    [ -n "$slurm" ] || fail "no package source here has slurmd" "add Debian's or Ubuntu's (universe) package source"
    munge=$(version_of munge)

    local release controller
    release=$(release_of "$slurm")
    if [ -n "$CONTROLLER_SLURM" ]; then
        controller=$(release_of "$CONTROLLER_SLURM")
        older "$controller" "$release" && fail \
            "Slurm $release here is newer than the controller's $controller; a controller must be the newest" \
            "upgrade the head node first, or take an image with Slurm $controller or older for $HOST_NAME"
        older "$release" "$SLURM_OLDEST" && fail \
            "Slurm $release here is too old for the controller's $controller, which accepts $SLURM_OLDEST and newer" \
            "take a newer image for $HOST_NAME"
    fi
    local gpus
    gpus=$(gpu_count)
    [ "$WANT_GPU_COUNT" -eq "$gpus" ] || [ "$WANT_GPU_COUNT" -eq 0 ] || fail \
        "the config promises $WANT_GPU_COUNT GPUs ($WANT_GPU_KIND), this machine shows $gpus in /dev/nvidia*" \
        "correct gpu: of $HOST_NAME in the config, or see nvidia-smi there"
    local cgroups
    cgroups=$(yes_no cgroups_delegated)
    if [ "$WANT_CGROUPS" = yes ] && [ "$cgroups" = false ]; then
        fail "the cluster confines jobs by cgroups, and this machine gives systemd no memory controller" \
            "boot $HOST_NAME with cgroup v2, or set tailrack:slurm.cgroups to false for the whole cluster"
    fi

    local os=unknown
    # shellcheck source=/dev/null
    os=$(. /etc/os-release && printf '%s %s' "$ID" "${VERSION_ID:-}")
    json_object \
        os "$(json_string "$os")" \
        architecture "$(json_string "$(uname -m)")" \
        kernel "$(json_string "$(uname -r)")" \
        cpus "$(nproc)" \
        memory_mb "$(awk '$1 == "MemTotal:" {print int($2 / 1024)}' /proc/meminfo)" \
        disk_free_mb "$(df --output=avail -m / | tail -n 1 | tr -d ' ')" \
        gpus "$gpus" \
        kernel_nfs_server "$(yes_no kernel_knows nfsd)" \
        kernel_nfs_client "$(yes_no kernel_knows nfs4)" \
        cgroups "$cgroups" \
        tun true \
        slurm_version "$(json_string "$slurm")" \
        munge_version "$(json_string "$munge")" >&3
}
