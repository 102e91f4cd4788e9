#!/bin/bash
# uses: machine/artifact
# Install Enroot, Pyxis and their settings, from files with known checksums.
#
# ENROOT_PYXIS_ARTIFACTS          `file sha256 address`, one a line
# ENROOT_PYXIS_PYXIS              Pyxis' version
# ENROOT_PYXIS_LOCAL              folder on the machine's own disk
# ENROOT_PYXIS_NVIDIA_LIBRARIES   true to give containers the driver's libraries on machines with GPUs
# NFS_EXPORTS_MOUNT               mount point of the share
# ENROOT_PYXIS_LAUNCHER           C source of the program that slurmd starts instead of slurmstepd
# SLURM_RELEASE                   the Slurm release that the config sets; empty for the distribution's
# NODE_SITE                       this machine's site

# Root's state.
CONTAINERS_DIR=$STATE_DIR/containers
# A folder of the share that only the head node's root can write (root_squash).
SHARED_CONTAINERS=containers
PLUGIN=/usr/local/lib/tailrack/spank_pyxis.so
# Slurm's TaskProlog cannot start inside a container without it (templates/slurmstepd.c).
LAUNCHER=/usr/local/lib/tailrack/slurmstepd
# The cluster's plugstack.conf includes this folder of each machine.
PLUGSTACK_DIR=/etc/tailrack/plugstack.d

# Print `file sha256` of the files whose name ends in $1 (a pattern).
artifacts() { sed -nE "s/^([^ ]*$1 [0-9a-f]+).*/\1/p" <<<"$ENROOT_PYXIS_ARTIFACTS"; }

# Copy files from the share into a folder of root's: ending, folder. Sets TAKEN to their paths.
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
        "cannot install Enroot's packages ($(head -n 1 <<<"$APT_SAID"))" "see above, then run up again"
    ensure_file "$CONTAINERS_DIR/enroot" 0644 root:root "$wanted"
}

# Disable Enroot's AppArmor profile on machines with an older parser than 4.0 (Ubuntu 22.04, Debian 12). It cannot parse
# that profile, and then loads no other profile at boot. This runs before the package's installation, which loads the
# profile.
leave_out_profile() {
    if [ ! -d /etc/apparmor.d ] || [ -e /etc/apparmor.d/abi/4.0 ]; then return 0; fi
    mkdir -p /etc/apparmor.d/disable
    ln -sfT /etc/apparmor.d/enroot /etc/apparmor.d/disable/enroot
}

# Load Enroot's AppArmor profile where users need a profile to create namespaces (since Ubuntu 24.04).
ensure_apparmor() {
    [ "$(cat /proc/sys/kernel/apparmor_restrict_unprivileged_userns 2>/dev/null)" = 1 ] || return 0
    grep -qs enroot-nsenter /sys/kernel/security/apparmor/profiles && return
    apparmor_parser -r /etc/apparmor.d/enroot || fail \
        "AppArmor does not load Enroot's profile, without which users cannot start containers here" \
        "run 'apparmor_parser -r /etc/apparmor.d/enroot' on $HOST_NAME to see why, then run up again"
}

# Install the tool that gives containers the driver's libraries. On machines with GPUs most images do not start without
# them.
ensure_gpu_libraries() {
    [ "$ENROOT_PYXIS_NVIDIA_LIBRARIES" = true ] || return 0
    compgen -G '/dev/nvidia[0-9]*' >/dev/null || return 0
    command -v nvidia-container-cli >/dev/null && return
    refresh_package_lists_now
    [ -n "$(candidate_of libnvidia-container-tools)" ] || fail \
        "this machine has GPUs, and none of its package sources has libnvidia-container-tools" \
        "add the package source of the NVIDIA container toolkit on $HOST_NAME, or set nvidia_libraries: false in \
tailrack:containers (images must then contain or mount the driver's libraries); then run up again"
    ensure_packages libnvidia-container-tools
}

# Print the build key of a plugin; another distribution or Slurm rejects it. The package has Slurm's version, because
# Slurm's commands may not work before there is a controller.
plugin_kind() {
    local ID VERSION_ID slurm
    slurm=${SLURM_RELEASE:+smd-$SLURM_RELEASE}
    # shellcheck disable=SC2016  # read by dpkg-query
    [ -n "$slurm" ] || slurm=$(dpkg-query -W -f='${source:Upstream-Version}' slurm-client)
    # shellcheck source=/dev/null
    . /etc/os-release
    printf '%s' "$ID-${VERSION_ID:-rolling}-$(dpkg --print-architecture)-slurm-$slurm-pyxis-$ENROOT_PYXIS_PYXIS"
}

# Compile Pyxis and the launcher for this machine into folder $1.
compile_plugin() {
    local target=$1 folder
    ensure_packages gcc libc6-dev make
    [ -n "$SLURM_RELEASE" ] || ensure_packages libslurm-dev
    make_temporary folder -d
    take_artifacts '[.]tar[.]gz' "$folder"
    tar -xzf "${TAKEN[0]}" -C "$folder" --strip-components=1 --no-same-owner
    make -s -C "$folder" || fail "Pyxis $ENROOT_PYXIS_PYXIS does not compile with this machine's Slurm" \
        "see the error above; does libslurm-dev have slurmd's version? ('apt-cache policy slurmd libslurm-dev' on $HOST_NAME)"
    printf '%s\n' "$ENROOT_PYXIS_LAUNCHER" >"$folder/slurmstepd.c"
    gcc -O2 -static -o "$folder/slurmstepd" "$folder/slurmstepd.c" ||
        fail "slurmstepd's launcher does not compile" "see the error above"
    publish "$folder/slurmstepd" "$target"
    publish "$folder/spank_pyxis.so" "$target"
}

# Copy file $1 to folder $2, then its checksum: a file without a checksum is incomplete.
publish() {
    local name=${1##*/}
    mkdir -p "$2"
    install -m 0755 "$1" "$2/$name.new"
    mv -fT "$2/$name.new" "$2/$name"
    ensure_file "$2/$name.sha256" 0644 root:root "$(sha256sum <"$2/$name" | cut -d ' ' -f 1)"
}

# Succeed if folder $1 has a complete plugin and launcher that root owns.
has_plugin() {
    local file
    for file in "$1/spank_pyxis.so" "$1/slurmstepd"; do
        [ "$(stat -c %u "$file" "$file.sha256" 2>/dev/null | sort -u)" = 0 ] && is_file_with "$file" "$(cat "$file.sha256")" || return 1
    done
}

# Install a published file $1 to path $2, unless it is already there.
install_published() {
    is_file_with "$2" "$(cat "$1.sha256")" && return
    install -D -m 0755 "$1" "$2.new"
    mv -fT "$2.new" "$2"
    note "installed $2"
}

# Install the plugin and the launcher. They run as root, so they come from the head node, which is trusted, or are
# compiled here; never from another node.
ensure_plugin() {
    local kind source
    kind=$(plugin_kind)
    source=$NFS_EXPORTS_MOUNT/$SHARED_CONTAINERS/pyxis/$kind
    if ! has_plugin "$source"; then
        note "the share has no Pyxis for $kind; compiling it here"
        source=$CONTAINERS_DIR/pyxis/$kind
        has_plugin "$source" || compile_plugin "$source"
    fi
    install_published "$source/slurmstepd" "$LAUNCHER"
    install_published "$source/spank_pyxis.so" "$PLUGIN"
    ensure_file "$CONTAINERS_DIR/plugin" 0644 root:root "$(cat "$source/spank_pyxis.so.sha256")"
}

# Make slurmd use the launcher, and restart a running one; its jobs continue.
ensure_launcher() {
    local changed=${CHANGED:-}
    CHANGED=
    ensure_file /etc/systemd/system/slurmd.service.d/tailrack-containers.conf 0644 root:root "[Service]
Environment=\"TAILRACK_SLURMD_OPTIONS=-d $LAUNCHER\""
    if [ -n "$CHANGED" ]; then
        systemctl daemon-reload
        timeout 60 systemctl try-restart slurmd ||
            fail "slurmd does not start again" "see 'journalctl -u slurmd' on $HOST_NAME, then run up again"
    fi
    CHANGED=$changed$CHANGED
}

# Write Enroot's settings. The parent folders have modes like /tmp's, because each user creates a folder in them.
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
    ensure_file /etc/enroot/enroot.conf.d/tailrack.conf 0644 root:root '# Written by tailrack: home folders are on the share, where containers do not belong.
ENROOT_RUNTIME_PATH /run/enroot/user-$(id -u)
ENROOT_CACHE_PATH /var/cache/enroot/user-$(id -u)
ENROOT_DATA_PATH '"$ENROOT_PYXIS_LOCAL"'/users/user-$(id -u)
ENROOT_TEMP_PATH /var/tmp
ENROOT_ROOTFS_WRITABLE yes'
    # Enroot's hook for MPI under Slurm.
    ln -sfT /usr/share/enroot/hooks.d/50-slurm-pmi.sh /etc/enroot/hooks.d/50-slurm-pmi.sh
    ensure_file /etc/tailrack/containers 0644 root:root "SHARED=$NFS_EXPORTS_MOUNT/$SHARED_CONTAINERS
LOCAL=$ENROOT_PYXIS_LOCAL
SITE=$NODE_SITE
NODE=$HOST_NAME"
}

# Build the smoke job's image: a shell, and a random text that only the image contains.
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
    [ -x "$ranks" ] || fail "$ranks is missing" "run up again"
    ensure_apparmor
    ensure_gpu_libraries
    ensure_plugin
    ensure_launcher
    ensure_enroot_settings
    ensure_smoke_image
    # `required` makes slurmd and job steps fail if the plugin is missing. Last, because this line enables it.
    ensure_file "$PLUGSTACK_DIR/pyxis.conf" 0644 root:root \
        "required $PLUGIN runtime_path=/run/pyxis container_scope=global importer=/usr/local/lib/tailrack/importer use_squashfuse=1"
}
