#!/bin/bash
# uses: machine/artifact
# Enroot, Pyxis and their settings on a machine, from files whose checksums the program knows.
#
# ENROOT_PYXIS_ARTIFACTS          `file sha256 address`, one a line
# ENROOT_PYXIS_PYXIS              Pyxis' version
# ENROOT_PYXIS_LOCAL              folder on a disk of the machine's own
# ENROOT_PYXIS_NVIDIA_LIBRARIES   true where containers get the driver's libraries on machines with GPUs
# NFS_EXPORTS_MOUNT               where the share is
# ENROOT_PYXIS_LAUNCHER           what slurmd starts in slurmstepd's place, in C
# SLURM_RELEASE                   the config's own release of Slurm; empty for the distribution's
# NODE_SITE                       the site that this machine stands at

# What is root's alone here.
CONTAINERS_DIR=$STATE_DIR/containers
# A folder of the share that only root of the head node can write: root of every other machine is nobody there.
SHARED_CONTAINERS=containers
PLUGIN=/usr/local/lib/tailrack/spank_pyxis.so
# Slurm's TaskProlog could not start inside a container without it (templates/slurmstepd.c).
LAUNCHER=/usr/local/lib/tailrack/slurmstepd
# Read by Slurm wherever the cluster's plugstack.conf is: what is not here is not loaded.
PLUGSTACK_DIR=/etc/tailrack/plugstack.d

# `file sha256` of the files with an ending, one a line.
artifacts() { sed -nE "s/^([^ ]*$1 [0-9a-f]+).*/\1/p" <<<"$ENROOT_PYXIS_ARTIFACTS"; }

# Take files of the share, by their ending, into a folder of root's own.
take_artifacts() {
    local ending=$1 folder=$2 name digest
    TAKEN=()
    while read -r name digest; do
        take_artifact "$NFS_EXPORTS_MOUNT/$SHARED_CONTAINERS/artifacts/$name" "$folder" "$digest"
        TAKEN+=("$folder/$name")
    done < <(artifacts "$ending")
}

ensure_enroot() {
    local folder wanted
    wanted=$(artifacts "_$(dpkg --print-architecture)[.]deb")
    if [ "$(cat "$CONTAINERS_DIR/enroot" 2>/dev/null)" = "$wanted" ] && [ -z "$(missing_of enroot enroot+caps)" ]; then return 0; fi
    make_temporary folder -d
    take_artifacts "_$(dpkg --print-architecture)[.]deb" "$folder"
    leave_out_profile
    when_unlocked dpkg --force-confold -i "${TAKEN[@]}" || fail \
        "Enroot's packages cannot be installed ($(head -n 1 <<<"$APT_SAID"))" "see above, then run up again"
    ensure_file "$CONTAINERS_DIR/enroot" 0644 root:root "$wanted"
}

# Enroot's profile is of AppArmor 4.0's language. An older parser (Ubuntu 22.04, Debian 12) knows none of it and fails with
# all other profiles at boot; nor does such a machine need it. Before the package, which would have it read.
leave_out_profile() {
    if [ ! -d /etc/apparmor.d ] || [ -e /etc/apparmor.d/abi/4.0 ]; then return 0; fi
    mkdir -p /etc/apparmor.d/disable
    ln -sfT /etc/apparmor.d/enroot /etc/apparmor.d/disable/enroot
}

# Where plain users may make namespaces only with a profile (since 24.04 of one distribution), Enroot's own allows it.
ensure_apparmor() {
    [ "$(cat /proc/sys/kernel/apparmor_restrict_unprivileged_userns 2>/dev/null)" = 1 ] || return 0
    grep -qs enroot-nsenter /sys/kernel/security/apparmor/profiles && return
    apparmor_parser -r /etc/apparmor.d/enroot || fail \
        "AppArmor does not take Enroot's profile, without which plain users start no container here" \
        "see 'apparmor_parser -r /etc/apparmor.d/enroot' on $HOST_NAME, then run up again"
}

# With GPUs, most images ask for the driver's libraries, and do not start where nothing brings them.
ensure_gpu_libraries() {
    [ "$ENROOT_PYXIS_NVIDIA_LIBRARIES" = true ] || return 0
    compgen -G '/dev/nvidia[0-9]*' >/dev/null || return 0
    command -v nvidia-container-cli >/dev/null && return
    refresh_package_lists_now
    [ -n "$(candidate_of libnvidia-container-tools)" ] || fail \
        "this machine has GPUs, and no package source that can be read here has libnvidia-container-tools" \
        "add the package source of the NVIDIA container toolkit on $HOST_NAME, or write nvidia_libraries: false in \
tailrack:containers (images then bring or mount the driver's libraries); then run up again"
    ensure_packages libnvidia-container-tools
}

# What a plugin is compiled for: another distribution or Slurm refuses it. By the package, because Slurm's own commands
# say nothing where they have no controller yet.
plugin_kind() {
    local ID VERSION_ID slurm
    slurm=${SLURM_RELEASE:+smd-$SLURM_RELEASE}
    # shellcheck disable=SC2016  # read by dpkg-query
    [ -n "$slurm" ] || slurm=$(dpkg-query -W -f='${source:Upstream-Version}' slurm-client)
    # shellcheck source=/dev/null
    . /etc/os-release
    printf '%s' "$ID-${VERSION_ID:-rolling}-$(dpkg --print-architecture)-slurm-$slurm-pyxis-$ENROOT_PYXIS_PYXIS"
}

# Compile Pyxis and the launcher for this machine into a folder of root's own. Only one step changes a machine at a time.
compile_plugin() {
    local target=$1 folder
    ensure_packages gcc libc6-dev make
    [ -n "$SLURM_RELEASE" ] || ensure_packages libslurm-dev
    make_temporary folder -d
    take_artifacts '[.]tar[.]gz' "$folder"
    tar -xzf "${TAKEN[0]}" -C "$folder" --strip-components=1 --no-same-owner
    make -s -C "$folder" || fail "Pyxis $ENROOT_PYXIS_PYXIS does not compile with this machine's Slurm" \
        "see above; does libslurm-dev have the version of slurmd here? ('apt-cache policy slurmd libslurm-dev' on $HOST_NAME)"
    printf '%s\n' "$ENROOT_PYXIS_LAUNCHER" >"$folder/slurmstepd.c"
    gcc -O2 -static -o "$folder/slurmstepd" "$folder/slurmstepd.c" || fail "slurmstepd's launcher does not compile" "see above"
    publish "$folder/slurmstepd" "$target"
    publish "$folder/spank_pyxis.so" "$target"
}

# The checksum comes last: a file without it is half copied.
publish() {
    local name=${1##*/}
    mkdir -p "$2"
    install -m 0755 "$1" "$2/$name.new"
    mv -fT "$2/$name.new" "$2/$name"
    ensure_file "$2/$name.sha256" 0644 root:root "$(sha256sum <"$2/$name" | cut -d ' ' -f 1)"
}

# Whether a folder has the plugin and the launcher, whole and nobody's but root's.
has_plugin() {
    local file
    for file in "$1/spank_pyxis.so" "$1/slurmstepd"; do
        [ "$(stat -c %u "$file" "$file.sha256" 2>/dev/null | sort -u)" = 0 ] && is_file_with "$file" "$(cat "$file.sha256")" || return 1
    done
}

# a published file, and its place; anew only where it is another one
install_published() {
    is_file_with "$2" "$(cat "$1.sha256")" && return
    install -D -m 0755 "$1" "$2.new"
    mv -fT "$2.new" "$2"
    note "installed $2"
}

# Install what was compiled for this machine's kind. It is root's code on every machine, so it comes from the one whose
# root may do anything anyway, the head node, or is compiled here; never from another node.
ensure_plugin() {
    local kind from
    kind=$(plugin_kind)
    from=$NFS_EXPORTS_MOUNT/$SHARED_CONTAINERS/pyxis/$kind
    if ! has_plugin "$from"; then
        note "the share has no Pyxis for $kind; it is compiled here"
        from=$CONTAINERS_DIR/pyxis/$kind
        has_plugin "$from" || compile_plugin "$from"
    fi
    install_published "$from/slurmstepd" "$LAUNCHER"
    install_published "$from/spank_pyxis.so" "$PLUGIN"
    ensure_file "$CONTAINERS_DIR/plugin" 0644 root:root "$(cat "$from/spank_pyxis.so.sha256")"
}

# A slurmd that runs starts anew with it; jobs go on.
ensure_launcher() {
    local known=${CHANGED:-}
    CHANGED=
    ensure_file /etc/systemd/system/slurmd.service.d/tailrack-containers.conf 0644 root:root "[Service]
Environment=\"TAILRACK_SLURMD_OPTIONS=-d $LAUNCHER\""
    if [ -n "$CHANGED" ]; then
        systemctl daemon-reload
        timeout 60 systemctl try-restart slurmd ||
            fail "slurmd does not start again" "see 'journalctl -u slurmd' on $HOST_NAME, then run up again"
    fi
    CHANGED=$known$CHANGED
}

# Parents like /tmp: each user makes a folder of his own in them.
ensure_enroot_settings() {
    ensure_file /etc/tmpfiles.d/tailrack-containers.conf 0644 root:root "d /run/enroot 1777 root root
d /run/pyxis 0755 root root
d /var/cache/enroot 1777 root root
d $ENROOT_PYXIS_LOCAL 0755 root root
d $ENROOT_PYXIS_LOCAL/users 1777 root root
d $ENROOT_PYXIS_LOCAL/images 0755 root root
z /dev/fuse 0666 root root"
    systemd-tmpfiles --create /etc/tmpfiles.d/tailrack-containers.conf
    # shellcheck disable=SC2016  # read by Enroot
    ensure_file /etc/enroot/enroot.conf.d/tailrack.conf 0644 root:root '# Written by tailrack: homes are on the share, which is no place for a container.
ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u)
ENROOT_CACHE_PATH /var/cache/enroot/user-$(id -u)
ENROOT_DATA_PATH '"$ENROOT_PYXIS_LOCAL"'/users/user-$(id -u)
ENROOT_TEMP_PATH /var/tmp
ENROOT_ROOTFS_WRITABLE yes'
    # MPI inside containers: Slurm's own hook.
    ln -sfT /usr/share/enroot/hooks.d/50-slurm-pmi.sh /etc/enroot/hooks.d/50-slurm-pmi.sh
    ensure_file /etc/tailrack/containers 0644 root:root "SHARED=$NFS_EXPORTS_MOUNT/$SHARED_CONTAINERS
LOCAL=$ENROOT_PYXIS_LOCAL
SITE=$NODE_SITE
NODE=$HOST_NAME"
}

# The image of the smoke job: a shell, and a text that is nowhere else.
ensure_smoke_image() {
    local folder image=$CONTAINERS_DIR/smoke.sqsh
    [ ! -s "$image" ] || [ ! -s "$CONTAINERS_DIR/inside" ] || return 0
    make_temporary folder -d
    mkdir -p "$folder"/{bin,etc,tmp,root,usr/bin,proc,sys,dev,run,var}
    cp "$(command -v busybox)" "$folder/bin/busybox"
    for name in sh cat id; do ln -s busybox "$folder/bin/$name"; done
    ensure_file "$CONTAINERS_DIR/inside" 0644 root:root "tailrack inside $(head -c 16 /dev/urandom | base64)"
    cp "$CONTAINERS_DIR/inside" "$folder/etc/tailrack-inside"
    rm -f "$image.new"
    mksquashfs "$folder" "$image.new" -all-root -no-progress -quiet
    mv -fT "$image.new" "$image"
}

install_containers() {
    local ranks=/etc/enroot/hooks.d/50-tailrack-ranks.sh
    mkdir -p "$CONTAINERS_DIR"
    chmod 0755 "$CONTAINERS_DIR"
    ensure_enroot
    [ -x "$ranks" ] || fail "$ranks is gone" "run up again"
    ensure_apparmor
    ensure_gpu_libraries
    ensure_plugin
    ensure_launcher
    ensure_enroot_settings
    ensure_smoke_image
    # Required: where the plugin is gone, slurmd and every step of a job say so and end. Last: with it, it is asked for.
    ensure_file "$PLUGSTACK_DIR/pyxis.conf" 0644 root:root \
        "required $PLUGIN runtime_path=/run/pyxis container_scope=global importer=/usr/local/lib/tailrack/importer use_squashfuse=1"
}
