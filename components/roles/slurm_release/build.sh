#!/bin/bash
# uses: slurm_release/package_folders
# Slurm's packages, built from its source with the packaging that comes with it. It happens in a root of its own, made of
# the distribution's packages alone, so that nothing of the machine gets in and nothing stays on it; by an account of its
# own, without a network, and all that it starts ends with it.
#
# SLURM_RELEASE          release, such as 24.11.5
# SLURM_RELEASE_SHA256   of its source
# SLURM_RELEASE_OLDEST   the oldest release that nodes of tailrack can have

# Nobody but root gets in.
BUILD=$STATE_DIR/slurm-build
BUILD_USER=tailrack-build
BUILD_LOG=$LOG_DIR/slurm-build.log
# Seconds, for the root and for the compiler each.
BUILD_LIMIT=3600
BUILD_ROOM_MB=4000

# One that was cut off may still be at work: all its processes are of this account, its network and mounts with them.
clear_build() {
    if id -u "$BUILD_USER" >/dev/null 2>&1; then
        pkill -KILL -u "$BUILD_USER" && wait_until 20 no_builder_left
        userdel "$BUILD_USER" || fail "the account $BUILD_USER, which builds Slurm, cannot be removed" "see 'ps -u $BUILD_USER' on $HOST_NAME"
    fi
    rm -rf --one-file-system "$BUILD"
}

no_builder_left() { ! pgrep -u "$BUILD_USER" >/dev/null; }

# Nothing of it stays but what was said.
build_failed() {
    note "the last lines of $BUILD_LOG:"
    tail -n 12 "$BUILD_LOG" >&2
    clear_build
    fail "Slurm $SLURM_RELEASE cannot be built for $(release_kind): $1" "$2"
}

# The same of what is fetched, whose program has said last what keeps it.
fetch_failed() {
    local reason
    reason=$(tail -n 40 "$BUILD_LOG" | fetch_reason)
    build_failed "$1${reason:+ ($reason)}" "$(fetch_remedy "$reason" "$2")"
}

# The distribution's own package sources, as one-line entries. What else a machine has is not of every machine of its kind.
distribution_sources() {
    local ID uri release component key
    # shellcheck source=/dev/null
    . /etc/os-release
    # shellcheck disable=SC2016  # read by apt-get
    apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT) $(SIGNED_BY)' 'Created-By: Packages' "Origin: ${ID^}" |
        sort -u | while read -r uri release component key; do
            [[ $key == /* ]] || key=/usr/share/keyrings/$ID-archive-keyring.gpg
            printf 'deb [signed-by=%s] %s %s %s\n' "$key" "$uri" "$release" "$component"
        done
}

# What makes the root, and what it and the source need and small images lack: a part of perl, and bzip2, by which SchedMD's own
# sources are packed. It is not installed, and goes with the rest.
fetch_bootstrap() {
    local perl package more=()
    command -v bzip2 >/dev/null || more=(bzip2)
    perl=$(perl -e 'printf "%vd", $^V')
    perl=${perl%.*}
    mkdir "$BUILD/tool"
    (
        cd "$BUILD/tool" && apt-get -q download mmdebstrap "perl-modules-$perl" "libperl$perl" "${more[@]}" || exit 1
        for package in *.deb; do dpkg -x "$package" . || exit 1; done
    ) >>"$BUILD_LOG" 2>&1 ||
        fetch_failed "mmdebstrap, which makes a clean root, cannot be fetched" \
            "see 'apt-cache policy mmdebstrap' on $HOST_NAME (on Ubuntu it is in universe), then run up again"
}

# SchedMD's packaging, less what nobody needs here (a desktop's window, the REST daemon, pages of HTML, and each library a
# second time for linking statically, which is half of the compiler's work), and with what it leaves out: PMIx as these
# distributions have it, and the names of their libraries, whose files it has too.
adapt_packaging() {
    local debian=$1/debian names='' number
    for number in {36..60}; do names+=", libslurm$number, libslurm${number}t64"; done
    awk -v RS= -v ORS='\n\n' '!/^Package: slurm-smd-(sview|slurmrestd|openlava|torque|doc)\n/' "$debian/control" |
        sed "/^ libgtk2.0-dev,\$/d; /^ man2html-base,\$/d; s/^Package: slurm-smd\$/&\nReplaces: ${names#, }\nBreaks: ${names#, }/" >"$debian/control.new"
    mv "$debian/control.new" "$debian/control"
    # shellcheck disable=SC2016  # read by make
    sed -i -E '1a include /usr/share/dpkg/architecture.mk
/slurmrestd/{/dh_auto_configure/!d}
s#--with-slurmrestd #--disable-slurmrestd --disable-static #
s#--with-pmix( |$)#--with-pmix=/usr/lib/$(DEB_HOST_MULTIARCH)/pmix2 #' "$debian/rules"
    sed -i "1s/)/+tailrack$RECIPE)/" "$debian/changelog"
    grep -q -- '--disable-static .*--with-pmix=/usr/lib/' "$debian/rules"
}

unpack_source() {
    local source=$BUILD/made/slurm is
    mkdir -p "$source"
    PATH=$PATH:$BUILD/tool/usr/bin:$BUILD/tool/bin tar -xf "$1" -C "$source" --strip-components=1 --no-same-owner >>"$BUILD_LOG" 2>&1 ||
        build_failed "its source cannot be unpacked" "name another one as tailrack:slurm.release_source, then run up again"
    is=$(awk '$1 == "Version:" {print $2; exit}' "$source/META" 2>/dev/null || :)
    [ "$is" = "$SLURM_RELEASE" ] || build_failed "its source is that of ${is:-something else}" \
        "write the checksum of slurm-$SLURM_RELEASE as tailrack:slurm.release_sha256, or ${is:-its release} as tailrack:slurm.release; then run up again"
    adapt_packaging "$source" || build_failed "its source has no packaging that is known here" \
        "take $SLURM_RELEASE_OLDEST or newer as tailrack:slurm.release (docs/slurm-releases.md), then run up again"
}

# A root with the compiler and all that the source is built with.
make_root() {
    local proxies=$BUILD/proxies perl
    perl=$(printf '%s\n' "$BUILD"/tool/usr/share/perl/5* "$BUILD"/tool/usr/lib/*/perl/5* | paste -sd :)
    apt-config dump --no-empty | grep -E '^Acquire::(http|https|ForceIPv)' >"$proxies" || :
    distribution_sources >"$BUILD/sources"
    [ -s "$BUILD/sources" ] || build_failed "apt knows no package source of the distribution itself here" \
        "add it on $HOST_NAME, then run up again"
    note "making a clean root"
    # shellcheck disable=SC2016  # $1 is mmdebstrap's
    within "$BUILD_LIMIT" env TMPDIR="$BUILD" PERL5LIB="$perl" unshare --mount --pid --fork --kill-child --mount-proc \
        "$BUILD/tool/usr/bin/mmdebstrap" --quiet --mode=root --variant=minbase --format=directory \
        --include=build-essential,fakeroot --aptopt="$proxies" --aptopt='APT::Sandbox::User "root"' --dpkgopt=force-unsafe-io \
        --customize-hook="mkdir -p \"\$1/made/slurm\" && cp -a '$BUILD/made/slurm/debian' \"\$1/made/slurm/\"" \
        --customize-hook='chroot "$1" apt-get -q -y --no-install-recommends build-dep /made/slurm' \
        '' "$BUILD/root" "$BUILD/sources" >>"$BUILD_LOG" 2>&1 </dev/null ||
        fetch_failed "no clean root with what it needs can be made" \
            "see 'apt-get update' on $HOST_NAME (universe on Ubuntu), then run up again"
    rm -rf "$BUILD/root/made"
    mv "$BUILD/made" "$BUILD/root/made"
}

# As many at once as there are CPUs, and memory for them.
jobs_at_once() { awk -v cpus="$(nproc)" '$1 == "MemAvailable:" {n = int($2 / 700000); print n < 1 ? 1 : n < cpus ? n : cpus}' /proc/meminfo; }

# One more thing than the account can do alone: its root is the one of the build. It says as much as it likes into the log.
# Nobody looks for the symbols of a debugger, and no distribution's own taste decides what is made.
compile() {
    # shellcheck disable=SC2016  # read by the inner shell
    within "$BUILD_LIMIT" nice -n 10 unshare --mount --pid --net --ipc --uts --fork --kill-child chroot "$BUILD/root" /bin/sh -c '
        mount -t proc proc /proc && cd /made/slurm && exec setpriv --reuid "$1" --regid "$2" --clear-groups --no-new-privs \
            env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/made LC_ALL=C.UTF-8 DEB_CFLAGS_STRIP=-g \
            DEB_BUILD_OPTIONS="nocheck noautodbgsym optimize=-lto parallel=$3" dpkg-buildpackage -b -uc -us' sh "$(id -u "$BUILD_USER")" "$(id -g "$BUILD_USER")" "$(jobs_at_once)" \
        </dev/null 2>&1 | head -c 100000000 >>"$BUILD_LOG"
}

compiled() { find "$BUILD/root/made" -name '*.o' | wc -l; }

compile_saying_how_far() {
    local all builder said=$SECONDS
    all=$(find "$BUILD/root/made" -name '*.c' | wc -l)
    note "compiling Slurm $SLURM_RELEASE, about $all files; all that is said is in $BUILD_LOG"
    compile &
    builder=$!
    while kill -0 "$builder" 2>/dev/null; do
        sleep 1
        [ $((SECONDS - said)) -ge 30 ] || continue
        said=$SECONDS
        note "compiled $(compiled) files of about $all"
    done
    wait "$builder"
}

# Make what was built the packages of a folder. It has its name when it is whole.
publish_release() {
    local from=$1 target=$2 package path
    rm -rf "$target.new" "$target"
    mkdir -p "$target.new"
    for package in "${RELEASE_PACKAGES[@]}"; do
        path=$(compgen -G "$from/${package}_*.deb") && [ -f "$path" ] && [ ! -L "$path" ] ||
            not_published "$target" "the packaging made no $package"
        install -m 0644 "$path" "$target.new/" || not_published "$target" "its packages cannot be kept in ${target%/*}"
    done
    (cd "$target.new" && sha256sum -- *.deb >SHA256SUMS) || not_published "$target" "its packages cannot be kept in ${target%/*}"
    sync -f "$target.new"
    mv -T "$target.new" "$target"
}

not_published() {
    rm -rf "$1.new"
    build_failed "$2" "see above and 'df -h ${1%/*}' on $HOST_NAME, then run up again"
}

# Build the packages of this machine's own kind into a folder. Only one step changes a machine at a time.
build_release() {
    local source=$1 target=$2 room
    note "building Slurm $SLURM_RELEASE for $(release_kind); it takes minutes on many cores, and more on few"
    clear_build
    install -d -m 0700 "$BUILD"
    : >"$BUILD_LOG"
    room=$(df -Pm "$BUILD" | awk 'NR == 2 {print $4}')
    [ "$room" -ge "$BUILD_ROOM_MB" ] || build_failed "it takes $BUILD_ROOM_MB MB, and $STATE_DIR has $room" \
        "make room there on $HOST_NAME, then run up again"
    refresh_package_lists
    fetch_bootstrap
    unpack_source "$source"
    make_root
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$BUILD_USER"
    chown -R "$BUILD_USER:$BUILD_USER" "$BUILD/root/made"
    compile_saying_how_far || build_failed "the compiler or the packaging failed" \
        "see $BUILD_LOG on $HOST_NAME; choose another tailrack:slurm.release, or mend what it says, then run up again"
    # From here on the building account reaches nothing there: no link of its own is followed.
    chown root:root "$BUILD/root/made"
    note "built; publishing"
    publish_release "$BUILD/root/made" "$target"
    clear_build
}
