#!/bin/bash
# Whether containers can be had here at all, before anything is changed.
#
# ENROOT_PYXIS_ARTIFACTS   `file sha256 address`, one a line

enroot_pyxis_check() {
    local name architecture
    architecture=$(dpkg --print-architecture)
    grep -q "_${architecture}[.]deb " <<<"$ENROOT_PYXIS_ARTIFACTS" || fail \
        "this machine is $architecture, and the config names no packages of Enroot for that" \
        "add Enroot's two packages that end in _$architecture.deb to tailrack:containers (their checksums, or the files and their \
SHA256SUMS in your folder; upstream has amd64 and arm64), or leave $HOST_NAME out of this stack"
    for name in user/max_user_namespaces kernel/unprivileged_userns_clone; do
        [ "$(cat "/proc/sys/$name" 2>/dev/null)" != 0 ] || fail \
            "this machine lets plain users make no namespaces (${name/\//.} is 0), without which no container starts" \
            "allow it on $HOST_NAME (sysctl -w ${name/\//.}=$([ "$name" = user/max_user_namespaces ] && echo 65536 || echo 1), and in /etc/sysctl.d), then run up again"
    done
    [ -e /dev/fuse ] || modprobe -n fuse || fail "this machine has no /dev/fuse, by which images are mounted" \
        "load the kernel module fuse on $HOST_NAME, then run up again"
}
