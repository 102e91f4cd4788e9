#!/bin/bash
# Whether containers can be had here at all, before anything is changed.

enroot_pyxis_gate() {
    local name
    [ "$(dpkg --print-architecture)" = amd64 ] || fail \
        "containers are installed from packages for amd64, and this machine is $(dpkg --print-architecture)" \
        "leave $HOST_NAME out of this stack, or take the section containers out of it"
    for name in user/max_user_namespaces kernel/unprivileged_userns_clone; do
        [ "$(cat "/proc/sys/$name" 2>/dev/null)" != 0 ] || fail \
            "this machine lets plain users make no namespaces (${name/\//.} is 0), without which no container starts" \
            "allow it on $HOST_NAME (sysctl -w ${name/\//.}=$([ "$name" = user/max_user_namespaces ] && echo 65536 || echo 1), and in /etc/sysctl.d), then run up again"
    done
    [ -e /dev/fuse ] || modprobe -n fuse || fail "this machine has no /dev/fuse, by which images are mounted" \
        "load the kernel module fuse on $HOST_NAME, then run up again"
}
