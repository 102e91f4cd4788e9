#!/bin/bash
# Check that this machine can run containers, before anything is changed.
#
# ENROOT_PYXIS_ARTIFACTS   `file sha256 address`, one a line

enroot_pyxis_check() {
    local name architecture
    architecture=$(dpkg --print-architecture)
    grep -q "_${architecture}[.]deb " <<<"$ENROOT_PYXIS_ARTIFACTS" || fail \
        "this machine is $architecture, and tailrack:containers has no Enroot packages for it" \
        "add Enroot's two packages that end in _$architecture.deb there (their checksums, or the files and their \
SHA256SUMS in your folder; upstream has amd64 and arm64), or leave $HOST_NAME out of this stack"
    for name in user/max_user_namespaces kernel/unprivileged_userns_clone; do
        [ "$(cat "/proc/sys/$name" 2>/dev/null)" != 0 ] || fail \
            "users cannot create namespaces on this machine (${name/\//.} is 0), so no container starts" \
            "allow it on $HOST_NAME (sysctl -w ${name/\//.}=$([ "$name" = user/max_user_namespaces ] && echo 65536 || echo 1), and in /etc/sysctl.d), then run up again"
    done
    [ -e /dev/fuse ] || modprobe -n fuse || fail "this machine has no /dev/fuse, which Enroot needs to mount images" \
        "load the kernel module fuse on $HOST_NAME, then run up again"
}
