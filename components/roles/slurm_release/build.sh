#!/bin/bash
# uses: slurm_release/package_folders
# Build Slurm's packages from its source, with the packaging in that source. The build runs in a clean root of the
# distribution's packages, so that nothing of the machine gets in and nothing stays on it. A separate account without a
# network runs the build, and every process that it starts ends with it.
#
# SLURM_RELEASE          release, such as 24.11.5
# SLURM_RELEASE_SHA256   checksum of its source
# SLURM_RELEASE_OLDEST   oldest release that works for tailrack's nodes

BUILD=$STATE_DIR/slurm-build
BUILD_USER=tailrack-build
BUILD_LOG=$LOG_DIR/slurm-build.log
# Seconds, each for the root and for the compiler.
BUILD_LIMIT=3600
BUILD_ROOM_MB=4000

# Remove an earlier build. An interrupted build may still run; ending all processes of its account also removes its
# network and mounts.
clear_build() {
    if id -u "$BUILD_USER" >/dev/null 2>&1; then
        pkill -KILL -u "$BUILD_USER" && wait_until 20 no_build_process
        userdel "$BUILD_USER" || fail "cannot remove the account $BUILD_USER, which builds Slurm" "see 'ps -u $BUILD_USER' on $HOST_NAME"
    fi
    rm -rf --one-file-system "$BUILD"
}

no_build_process() { ! pgrep -u "$BUILD_USER" >/dev/null; }

# Fail and remove everything except the log: reason, remedy.
build_failed() {
    note "the last lines of $BUILD_LOG:"
    tail -n 12 "$BUILD_LOG" >&2
    clear_build
    fail "Slurm $SLURM_RELEASE cannot be built for $(release_kind): $1" "$2"
}

# Fail a download; its program logged the reason last.
fetch_failed() {
    local reason
    reason=$(tail -n 40 "$BUILD_LOG" | fetch_reason)
    build_failed "$1${reason:+ ($reason)}" "$(fetch_remedy "$reason" "$2")"
}

# Print the distribution's package sources as one-line entries. Other sources differ between machines of one kind.
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

# Download the tool that makes the root and the packages that it and the source need but small images lack: a part of
# perl, and bzip2, which unpacks SchedMD's sources. Nothing is installed; the build folder contains it all.
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
        fetch_failed "cannot download mmdebstrap, which makes a clean root" \
            "see 'apt-cache policy mmdebstrap' on $HOST_NAME (on Ubuntu it is in universe), then run up again"
}

# Adapt SchedMD's packaging. Leave out parts that no one needs here: the desktop program, the REST daemon, HTML pages,
# and static libraries, which are half of the compiler's work. Add PMIx as these distributions have it, and replace
# their Slurm libraries, whose files the packages contain too.
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
    local source=$BUILD/made/slurm version
    mkdir -p "$source"
    PATH=$PATH:$BUILD/tool/usr/bin:$BUILD/tool/bin tar -xf "$1" -C "$source" --strip-components=1 --no-same-owner >>"$BUILD_LOG" 2>&1 ||
        build_failed "its source cannot be unpacked" "set tailrack:slurm.release_source to another archive, then run up again"
    version=$(awk '$1 == "Version:" {print $2; exit}' "$source/META" 2>/dev/null || :)
    [ "$version" = "$SLURM_RELEASE" ] || build_failed "its source contains ${version:-something else}" \
        "write the checksum of slurm-$SLURM_RELEASE as tailrack:slurm.release_sha256, or ${version:-its release} as tailrack:slurm.release; then run up again"
    adapt_packaging "$source" || build_failed "its source has no packaging that tailrack can use" \
        "set tailrack:slurm.release to $SLURM_RELEASE_OLDEST or newer (docs/slurm-releases.md), then run up again"
}

# Make a root with the compiler and the build dependencies of the source.
make_root() {
    local proxies=$BUILD/proxies perl
    perl=$(printf '%s\n' "$BUILD"/tool/usr/share/perl/5* "$BUILD"/tool/usr/lib/*/perl/5* | paste -sd :)
    apt-config dump --no-empty | grep -E '^Acquire::(http|https|ForceIPv)' >"$proxies" || :
    distribution_sources >"$BUILD/sources"
    [ -s "$BUILD/sources" ] || build_failed "apt has no package source of the distribution on this machine" \
        "add it on $HOST_NAME, then run up again"
    note "making a clean root"
    # shellcheck disable=SC2016  # $1 is mmdebstrap's
    within "$BUILD_LIMIT" env TMPDIR="$BUILD" PERL5LIB="$perl" unshare --mount --pid --fork --kill-child --mount-proc \
        "$BUILD/tool/usr/bin/mmdebstrap" --quiet --mode=root --variant=minbase --format=directory \
        --include=build-essential,fakeroot --aptopt="$proxies" --aptopt='APT::Sandbox::User "root"' --dpkgopt=force-unsafe-io \
        --customize-hook="mkdir -p \"\$1/made/slurm\" && cp -a '$BUILD/made/slurm/debian' \"\$1/made/slurm/\"" \
        --customize-hook='chroot "$1" apt-get -q -y --no-install-recommends build-dep /made/slurm' \
        '' "$BUILD/root" "$BUILD/sources" >>"$BUILD_LOG" 2>&1 </dev/null ||
        fetch_failed "cannot make a clean root with its build dependencies" \
            "see 'apt-get update' on $HOST_NAME (universe on Ubuntu), then run up again"
    rm -rf "$BUILD/root/made"
    mv "$BUILD/made" "$BUILD/root/made"
}

# One compiler per CPU, if memory allows.
parallel_jobs() { awk -v cpus="$(nproc)" '$1 == "MemAvailable:" {n = int($2 / 700000); print n < 1 ? 1 : n < cpus ? n : cpus}' /proc/meminfo; }

# Compile in the build's root, as the build account. The log is limited in size. Leave out debugger symbols and the
# distribution's build options.
compile() {
    # shellcheck disable=SC2016  # read by the inner shell
    within "$BUILD_LIMIT" nice -n 10 unshare --mount --pid --net --ipc --uts --fork --kill-child chroot "$BUILD/root" /bin/sh -c '
        mount -t proc proc /proc && cd /made/slurm && exec setpriv --reuid "$1" --regid "$2" --clear-groups --no-new-privs \
            env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/made LC_ALL=C.UTF-8 DEB_CFLAGS_STRIP=-g \
            DEB_BUILD_OPTIONS="nocheck noautodbgsym optimize=-lto parallel=$3" dpkg-buildpackage -b -uc -us' sh "$(id -u "$BUILD_USER")" "$(id -g "$BUILD_USER")" "$(parallel_jobs)" \
        </dev/null 2>&1 | head -c 100000000 >>"$BUILD_LOG"
}

compiled_files() { find "$BUILD/root/made" -name '*.o' | wc -l; }

compile_with_progress() {
    local all builder last_note=$SECONDS
    all=$(find "$BUILD/root/made" -name '*.c' | wc -l)
    note "compiling Slurm $SLURM_RELEASE, about $all files; its output is in $BUILD_LOG"
    compile &
    builder=$!
    while kill -0 "$builder" 2>/dev/null; do
        sleep 1
        [ $((SECONDS - last_note)) -ge 30 ] || continue
        last_note=$SECONDS
        note "compiled $(compiled_files) of about $all files"
    done
    wait "$builder"
}

# Move the built packages into a folder, which gets its name when it is complete: folder of the build, target.
publish_release() {
    local from=$1 target=$2 package path
    rm -rf "$target.new" "$target"
    mkdir -p "$target.new"
    for package in "${RELEASE_PACKAGES[@]}"; do
        path=$(compgen -G "$from/${package}_*.deb") && [ -f "$path" ] && [ ! -L "$path" ] ||
            publish_failed "$target" "the packaging made no $package"
        install -m 0644 "$path" "$target.new/" || publish_failed "$target" "cannot write its packages into ${target%/*}"
    done
    (cd "$target.new" && sha256sum -- *.deb >SHA256SUMS) || publish_failed "$target" "cannot write its packages into ${target%/*}"
    sync -f "$target.new"
    mv -T "$target.new" "$target"
}

publish_failed() {
    rm -rf "$1.new"
    build_failed "$2" "see above and 'df -h ${1%/*}' on $HOST_NAME, then run up again"
}

# Build packages for this kind of machine: archive of the source, target folder. Steps change a machine one at a time.
build_release() {
    local source=$1 target=$2 room
    note "building Slurm $SLURM_RELEASE for $(release_kind); it takes minutes on many cores, longer on few"
    clear_build
    install -d -m 0700 "$BUILD"
    : >"$BUILD_LOG"
    room=$(df -Pm "$BUILD" | awk 'NR == 2 {print $4}')
    [ "$room" -ge "$BUILD_ROOM_MB" ] || build_failed "it needs $BUILD_ROOM_MB MB, and $STATE_DIR has $room" \
        "make room there on $HOST_NAME, then run up again"
    refresh_package_lists
    fetch_bootstrap
    unpack_source "$source"
    make_root
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin "$BUILD_USER"
    chown -R "$BUILD_USER:$BUILD_USER" "$BUILD/root/made"
    compile_with_progress || build_failed "the compiler or the packaging failed" \
        "see $BUILD_LOG on $HOST_NAME; set another tailrack:slurm.release, or repair the cause, then run up again"
    # From now on, the build account cannot place a link here.
    chown root:root "$BUILD/root/made"
    note "built; publishing"
    publish_release "$BUILD/root/made" "$target"
    clear_build
}
